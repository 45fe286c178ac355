//! Statements.

use super::{Parser, Result, only_includes};
use crate::ast::{Def, Expr, Stmt};
use crate::error::SnlError;
use crate::lex::Tok;

impl Parser {
    pub(super) fn block(&mut self) -> Result<Vec<Stmt>> {
        self.need("{")?;
        let mut body = Vec::new();
        while !self.accept("}") {
            if self.tok() == &Tok::End {
                return self.expected("\"}\"");
            }
            if self.is_type(self.tok()) {
                self.declaration(false, &mut |def| {
                    if let Def::Var(var) = def {
                        body.push(Stmt::Var(var));
                    }
                })?;
            } else {
                body.push(self.statement()?);
            }
        }
        Ok(body)
    }

    pub(super) fn statement(&mut self) -> Result<Stmt> {
        self.deeper(|this| {
            let pos = this.pos();
            if let Tok::Code(code) = this.tok() {
                let harmless = only_includes(code);
                this.at += 1;
                return Ok(if harmless { Stmt::Block(Vec::new()) } else { Stmt::Code(pos) });
            }
            let Tok::Name(word) = this.tok().clone() else {
                if this.is("{") {
                    return this.block().map(Stmt::Block);
                }
                if this.accept(";") {
                    return Ok(Stmt::Block(Vec::new()));
                }
                return this.simple();
            };
            match &*word {
                "if" => {
                    let mut branches = Vec::new();
                    while this.accept("if") {
                        branches.push((this.parenthesised()?, this.statement()?));
                        if !this.accept("else") {
                            return Ok(Stmt::If(branches, None));
                        }
                    }
                    Ok(Stmt::If(branches, Some(Box::new(this.statement()?))))
                }
                "while" => {
                    this.at += 1;
                    Ok(Stmt::While(this.parenthesised()?, Box::new(this.statement()?)))
                }
                "for" => {
                    this.at += 1;
                    this.need("(")?;
                    let start = this.optional(";")?;
                    let condition = this.optional(";")?;
                    let step = this.optional(")")?;
                    Ok(Stmt::For(start, condition, step, Box::new(this.statement()?)))
                }
                "break" | "continue" => {
                    this.at += 1;
                    this.need(";")?;
                    Ok(if &*word == "break" { Stmt::Break(pos) } else { Stmt::Continue(pos) })
                }
                "return" => {
                    this.at += 1;
                    Ok(Stmt::Return(this.optional(";")?, pos))
                }
                "state" => {
                    this.at += 1;
                    let name = this.name("the name of a state")?;
                    this.need(";")?;
                    Ok(Stmt::State(name, pos))
                }
                "switch" | "do" | "goto" | "case" | "default" => {
                    Err(SnlError::new(pos, format!("found \"{word}\", which SNL does not have"))
                        .remedy("use if, while, for or a state"))
                }
                _ => this.simple(),
            }
        })
    }

    pub(super) fn simple(&mut self) -> Result<Stmt> {
        let expr = self.comma()?;
        if !self.accept(";") {
            return self.expected("\";\" or an operator");
        }
        Ok(Stmt::Expr(expr))
    }

    pub(super) fn optional(&mut self, end: &str) -> Result<Option<Expr>> {
        if self.accept(end) {
            return Ok(None);
        }
        let expr = self.comma()?;
        self.need(end)?;
        Ok(Some(expr))
    }

    pub(super) fn parenthesised(&mut self) -> Result<Expr> {
        self.need("(")?;
        let expr = self.comma()?;
        self.need(")")?;
        Ok(expr)
    }
}
