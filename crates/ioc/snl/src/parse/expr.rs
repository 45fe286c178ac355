//! Expressions.

use super::{DEPTH_MAX, Parser, RESERVED, Result, whole};
use crate::ast::{BinOp, Expr, Kind, Prim, Ty, UnOp};
use crate::error::{Pos, SnlError};
use crate::lex::Tok;

const fn binary(sign: &str) -> Option<(u8, Option<BinOp>)> {
    Some(match sign.as_bytes() {
        b"||" => (1, None),
        b"&&" => (2, None),
        b"|" => (3, Some(BinOp::Or)),
        b"^" => (4, Some(BinOp::Xor)),
        b"&" => (5, Some(BinOp::And)),
        b"==" => (6, Some(BinOp::Eq)),
        b"!=" => (6, Some(BinOp::Ne)),
        b"<" => (7, Some(BinOp::Lt)),
        b"<=" => (7, Some(BinOp::Le)),
        b">" => (7, Some(BinOp::Gt)),
        b">=" => (7, Some(BinOp::Ge)),
        b"<<" => (8, Some(BinOp::Shl)),
        b">>" => (8, Some(BinOp::Shr)),
        b"+" => (9, Some(BinOp::Add)),
        b"-" => (9, Some(BinOp::Sub)),
        b"*" => (10, Some(BinOp::Mul)),
        b"/" => (10, Some(BinOp::Div)),
        b"%" => (10, Some(BinOp::Rem)),
        _ => return None,
    })
}

/// The operator of an assignment; `None` if it is not one, `Some(None)` for `=`.
fn assignment(sign: &str) -> Option<Option<BinOp>> {
    match sign {
        "=" => Some(None),
        "==" | "<=" | ">=" | "!=" => None,
        _ => sign.strip_suffix('=').and_then(binary).map(|(_, op)| op),
    }
}

impl Parser {
    pub(super) fn made(&self, kind: Kind, pos: Pos, below: u16) -> Result<Expr> {
        if below >= DEPTH_MAX {
            let what = format!("found an expression of more than {DEPTH_MAX} levels");
            return Err(SnlError::new(pos, what).remedy("split the expression"));
        }
        Ok(Expr { kind, pos, depth: below + 1 })
    }

    pub(super) fn comma(&mut self) -> Result<Expr> {
        let mut left = self.expr()?;
        while self.is(",") {
            let pos = self.pos();
            self.at += 1;
            let right = self.expr()?;
            let below = left.depth.max(right.depth);
            left = self.made(Kind::Comma(Box::new(left), Box::new(right)), pos, below)?;
        }
        Ok(left)
    }

    pub(super) fn expr(&mut self) -> Result<Expr> {
        self.deeper(|this| {
            let left = this.choice()?;
            let Tok::Sign(sign) = *this.tok() else { return Ok(left) };
            let Some(op) = assignment(sign) else { return Ok(left) };
            let pos = this.pos();
            this.at += 1;
            let right = this.expr()?;
            let below = left.depth.max(right.depth);
            this.made(Kind::Assign(op, Box::new(left), Box::new(right)), pos, below)
        })
    }

    pub(super) fn choice(&mut self) -> Result<Expr> {
        let condition = self.operation(0)?;
        let pos = self.pos();
        if !self.accept("?") {
            return Ok(condition);
        }
        self.deeper(|this| {
            let yes = this.comma()?;
            this.need(":")?;
            let no = this.choice()?;
            let below = condition.depth.max(yes.depth).max(no.depth);
            this.made(Kind::Choice(Box::new(condition), Box::new(yes), Box::new(no)), pos, below)
        })
    }

    pub(super) fn operation(&mut self, lowest: u8) -> Result<Expr> {
        let mut left = self.prefix()?;
        loop {
            let Tok::Sign(sign) = *self.tok() else { return Ok(left) };
            let Some((rank, op)) = binary(sign).filter(|(rank, _)| *rank > lowest) else { return Ok(left) };
            let pos = self.pos();
            self.at += 1;
            let right = self.deeper(|this| this.operation(rank))?;
            let below = left.depth.max(right.depth);
            let (left_box, right) = (Box::new(left), Box::new(right));
            let kind = match op {
                Some(op) => Kind::Binary(op, left_box, right),
                None => Kind::Logic(sign == "&&", left_box, right),
            };
            left = self.made(kind, pos, below)?;
        }
    }

    pub(super) fn prefix(&mut self) -> Result<Expr> {
        self.deeper(|this| {
            let pos = this.pos();
            if let Tok::Sign(sign) = *this.tok() {
                let op = match sign {
                    "+" => Some(UnOp::Plus),
                    "-" => Some(UnOp::Minus),
                    "!" => Some(UnOp::Not),
                    "~" => Some(UnOp::Complement),
                    "&" => Some(UnOp::Address),
                    "*" => Some(UnOp::Target),
                    _ => None,
                };
                if let Some(op) = op {
                    this.at += 1;
                    let of = this.prefix()?;
                    let below = of.depth;
                    return this.made(Kind::Unary(op, Box::new(of)), pos, below);
                }
                if sign == "++" || sign == "--" {
                    this.at += 1;
                    let of = this.prefix()?;
                    let below = of.depth;
                    return this.made(Kind::Step(Box::new(of), if sign == "++" { 1 } else { -1 }, false), pos, below);
                }
                if sign == "(" && this.is_type(this.ahead(1)) {
                    this.at += 1;
                    let ty = this.type_name()?;
                    let of = this.prefix()?;
                    let below = of.depth;
                    return this.made(Kind::Cast(ty, Box::new(of)), pos, below);
                }
            }
            if this.accept("sizeof") {
                if this.is("(") && this.is_type(this.ahead(1)) {
                    this.at += 1;
                    let ty = this.type_name()?;
                    return this.made(Kind::SizeOfType(ty), pos, 0);
                }
                let of = this.prefix()?;
                let below = of.depth;
                return this.made(Kind::SizeOf(Box::new(of)), pos, below);
            }
            this.postfix()
        })
    }

    /// A type in parentheses, whose first was read.
    pub(super) fn type_name(&mut self) -> Result<Ty> {
        let base = self.base_type()?;
        let ty = self.declarator(base, false)?.ty;
        self.need(")")?;
        Ok(ty)
    }

    pub(super) fn postfix(&mut self) -> Result<Expr> {
        let mut left = self.primary()?;
        loop {
            let pos = self.pos();
            let below = left.depth;
            let kind = if self.accept("[") {
                let index = self.comma()?;
                self.need("]")?;
                let below = below.max(index.depth);
                left = self.made(Kind::Index(Box::new(left), Box::new(index)), pos, below)?;
                continue;
            } else if self.accept(".") {
                Kind::Member(Box::new(left), self.name("the name of a member")?, false)
            } else if self.accept("->") {
                Kind::Member(Box::new(left), self.name("the name of a member")?, true)
            } else if self.accept("++") {
                Kind::Step(Box::new(left), 1, true)
            } else if self.accept("--") {
                Kind::Step(Box::new(left), -1, true)
            } else {
                return Ok(left);
            };
            left = self.made(kind, pos, below)?;
        }
    }

    pub(super) fn primary(&mut self) -> Result<Expr> {
        let pos = self.pos();
        if let Some(text) = self.text()? {
            return self.made(Kind::Text(text), pos, 0);
        }
        let kind = match self.tok().clone() {
            Tok::Number(text) => match number(&text) {
                Some(kind) => kind,
                None => return self.expected("a number"),
            },
            Tok::Char(byte) => Kind::Int(i64::from(byte as i8), Prim::I32),
            Tok::Sign("(") => {
                self.at += 1;
                let expr = self.deeper(Self::comma)?;
                self.need(")")?;
                return Ok(expr);
            }
            Tok::Name(name) if !RESERVED.contains(&&*name) || &*name == "exit" => {
                self.at += 1;
                if !self.accept("(") {
                    return self.made(Kind::Name(name.to_string()), pos, 0);
                }
                let (mut arguments, mut below) = (Vec::new(), 0);
                while !self.accept(")") {
                    let argument = self.expr()?;
                    below = below.max(argument.depth);
                    arguments.push(argument);
                    if !self.accept(",") && !self.is(")") {
                        return self.expected("\",\" or \")\"");
                    }
                }
                return self.made(Kind::Call(name.to_string(), arguments), pos, below);
            }
            _ => return self.expected("an expression"),
        };
        self.at += 1;
        self.made(kind, pos, 0)
    }
}

fn number(text: &str) -> Option<Kind> {
    if let Some((value, unsigned, long)) = whole(text) {
        let decimal = !text.starts_with('0');
        let prim = match (unsigned, long) {
            (false, false) if i32::try_from(value).is_ok() => Prim::I32,
            (_, false) if u32::try_from(value).is_ok() && (unsigned || !decimal) => Prim::U32,
            (false, _) if i64::try_from(value).is_ok() => Prim::I64,
            _ => Prim::U64,
        };
        return Some(Kind::Int(value as i64, prim));
    }
    let digits = text.trim_end_matches(['f', 'F', 'l', 'L']);
    let value: f64 = digits.parse().ok()?;
    Some(match text.ends_with(['f', 'F']) {
        true => Kind::Float(f64::from(value as f32), Prim::F32),
        false => Kind::Float(value, Prim::F64),
    })
}
