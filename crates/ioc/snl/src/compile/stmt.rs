//! Statements.

use super::Compiler;
use crate::ast::{Expr, Stmt, Ty};
use crate::code::Op;
use crate::error::{Pos, SnlError};
use std::collections::HashMap;

impl Compiler {
    pub(super) fn block(&mut self, body: &[Stmt]) {
        self.scopes.push(HashMap::new());
        let end = self.local_end;
        body.iter().for_each(|stmt| self.statement(stmt));
        self.local_end = end;
        self.scopes.pop();
    }

    fn statement(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Expr(expr) => self.ignored(expr),
            Stmt::Var(var) => self.local_variable(var),
            Stmt::Block(body) => self.block(body),
            Stmt::Code(pos) => self.embedded(*pos),
            Stmt::If(branches, other) => {
                let mut ends = Vec::new();
                for (condition, then) in branches {
                    self.truth(condition);
                    let to_else = self.jump(Op::JumpZero(0), condition.pos);
                    self.statement(then);
                    ends.push(self.jump(Op::Jump(0), condition.pos));
                    self.land(to_else);
                }
                other.iter().for_each(|other| self.statement(other));
                ends.into_iter().for_each(|end| self.land(end));
            }
            Stmt::While(condition, body) => {
                let start = self.here();
                self.truth(condition);
                let to_end = self.jump(Op::JumpZero(0), condition.pos);
                self.loops.push((vec![to_end], Vec::new()));
                self.statement(body);
                self.end_loop(start, None, condition.pos);
            }
            Stmt::For(first, condition, step, body) => {
                first.iter().for_each(|first| self.ignored(first));
                let start = self.here();
                let mut breaks = Vec::new();
                if let Some(condition) = condition {
                    self.truth(condition);
                    breaks.push(self.jump(Op::JumpZero(0), condition.pos));
                }
                self.loops.push((breaks, Vec::new()));
                self.statement(body);
                let pos = step.as_ref().or(condition.as_ref()).map_or(Pos::default(), |expr| expr.pos);
                self.end_loop(start, step.as_ref(), pos);
            }
            Stmt::Break(pos) | Stmt::Continue(pos) => {
                let jump = self.jump(Op::Jump(0), *pos);
                match self.loops.last_mut() {
                    Some((breaks, _)) if matches!(stmt, Stmt::Break(_)) => breaks.push(jump),
                    Some((_, continues)) => continues.push(jump),
                    None => self.error(*pos, "found break or continue outside of a loop"),
                }
            }
            Stmt::Return(value, pos) => {
                let Some(result) = self.context.result.clone() else {
                    let what = "found return outside of a function";
                    return self
                        .fault(SnlError::new(*pos, what).remedy("use \"state NAME;\" to leave an action early"));
                };
                match (value, &result) {
                    (Some(value), Ty::Void) => {
                        self.ignored(value);
                        self.emit(Op::Push(0), *pos);
                    }
                    (Some(value), _) => {
                        let found = self.value(value);
                        self.convert(&found, &result, *pos);
                    }
                    (None, _) => self.emit(Op::Push(0), *pos),
                }
                self.emit(Op::Return, *pos);
            }
            Stmt::State(name, pos) => {
                if !self.context.is_action {
                    return self.error(*pos, "found a change of state, expected it in the block of a \"when\"");
                }
                match self.context.states.iter().position(|state| state == name) {
                    Some(found) => self.emit(Op::State(found as u32), *pos),
                    None => self.unknown_state(name, *pos),
                }
            }
        }
    }

    /// An expression whose value is not used.
    fn ignored(&mut self, expr: &Expr) {
        self.value(expr);
        self.emit(Op::Pop, expr.pos);
    }

    fn end_loop(&mut self, start: u32, step: Option<&Expr>, pos: Pos) {
        let (breaks, continues) = self.loops.pop().unwrap_or_default();
        continues.into_iter().for_each(|jump| self.land(jump));
        step.into_iter().for_each(|step| self.ignored(step));
        self.emit(Op::Jump(start), pos);
        breaks.into_iter().for_each(|jump| self.land(jump));
    }
}
