//! Definitions: variables, types, channels, functions.

use super::{Parser, RESERVED, Result, only_includes};
use crate::ast::{BinOp, Def, Expr, Function, Init, Kind, Names, Prim, Target, Ty, UnOp, Var};
use crate::error::{Pos, SnlError};
use crate::lex::Tok;

/// Maximum number of elements of an array.
const ELEMENTS_MAX: i64 = 10_000_000;
/// Maximum number of dimensions, pointers and parameter lists of a declared name.
const PARTS_MAX: usize = 20;

/// A declared name with its type, and the parameters if it is a function.
pub(super) struct Declared {
    name: String,
    pub(super) ty: Ty,
    params: Option<Vec<Var>>,
    pos: Pos,
}

/// A part of a declarator.
pub(super) enum Part {
    Pointer,
    Array(u32),
    Function(Vec<Var>),
}

impl Parser {
    pub(super) fn def(&mut self, defs: &mut Vec<Def>, top: bool) -> Result<()> {
        let pos = self.pos();
        if let Tok::Code(code) = self.tok() {
            if !only_includes(code) {
                defs.push(Def::Code(pos));
            }
            self.at += 1;
            return Ok(());
        }
        if self.accept("option") {
            let mut letters = Vec::new();
            while let Some(on) = ["+", "-"].into_iter().find(|sign| self.is(sign)) {
                self.at += 1;
                let names = self.name("letters of options")?;
                letters.extend(names.chars().map(|letter| (letter, on == "+")));
            }
            if letters.is_empty() {
                return self.expected("\"+\" or \"-\" with a letter");
            }
            defs.push(Def::Options(letters));
            return self.need(";");
        }
        if self.accept("assign") {
            let target = self.target()?;
            self.accept("to");
            let names = if self.is(";") {
                Names::One(String::new())
            } else if self.accept("{") {
                let mut names = Vec::new();
                while !self.accept("}") {
                    names.push(self.string("the name of a process variable in quotes")?);
                    if !self.accept(",") && !self.is("}") {
                        return self.expected("\",\" or \"}\"");
                    }
                }
                Names::Each(names)
            } else {
                Names::One(self.string("the name of a process variable in quotes")?)
            };
            defs.push(Def::Assign(target, names));
            return self.need(";");
        }
        if self.accept("monitor") {
            let target = self.target()?;
            defs.push(Def::Monitor(target));
            return self.need(";");
        }
        if self.accept("sync") {
            let target = self.target()?;
            self.accept("to");
            let flag = self.name("the name of an event flag")?;
            defs.push(Def::Sync(target, flag));
            return self.need(";");
        }
        if self.accept("syncq") || self.accept("syncQ") {
            let target = self.target()?;
            self.accept("to");
            let flag = if matches!(self.tok(), Tok::Name(_)) { Some(self.name("an event flag")?) } else { None };
            let size = if self.is(";") { 100 } else { self.constant()? };
            let size = u32::try_from(size).ok().filter(|size| (1..=100_000).contains(size));
            let Some(size) = size else { return Err(SnlError::new(pos, "expected a length of 1 to 100000")) };
            defs.push(Def::Queue(target, flag, size));
            return self.need(";");
        }
        // Names in C code, and constants that older programs declare. An unknown name is refused where it is used.
        if self.accept("foreign") {
            while !self.accept(";") {
                self.name("the name of a variable")?;
                if !self.accept(",") && !self.is(";") {
                    return self.expected("\",\" or \";\"");
                }
            }
            return Ok(());
        }
        if top && self.is("struct") && matches!(self.ahead(2), Tok::Sign("{")) {
            self.at += 1;
            let name = self.name("the name of the structure")?;
            self.need("{")?;
            let mut members = Vec::new();
            while !self.accept("}") {
                let base = self.base_type()?;
                loop {
                    let one = self.declarator(base.clone(), true)?;
                    members.push((one.name, one.ty));
                    if !self.accept(",") {
                        break;
                    }
                }
                self.need(";")?;
            }
            defs.push(Def::Struct(name, members, pos));
            return self.need(";");
        }
        self.declaration(top, &mut |def| defs.push(def))
    }

    pub(super) fn target(&mut self) -> Result<Target> {
        let pos = self.pos();
        let name = self.name("the name of a variable")?;
        let mut index = None;
        if self.accept("[") {
            let found = self.constant()?;
            let what = || SnlError::new(pos, format!("found element {found}, expected one from 0"));
            index = Some(u32::try_from(found).map_err(|_| what())?);
            self.need("]")?;
        }
        Ok(Target { name, index, pos })
    }

    /// Variables, or a function.
    pub(super) fn declaration(&mut self, top: bool, add: &mut dyn FnMut(Def)) -> Result<()> {
        let base = self.base_type()?;
        loop {
            let Declared { name, ty, params, pos } = self.declarator(base.clone(), true)?;
            match params {
                Some(params) if top && self.is("{") => {
                    let body = self.block()?;
                    add(Def::Function(Function { name, result: ty, params, body, pos }));
                    return Ok(());
                }
                // A function may be declared before its definition, which needs no declaration.
                Some(_) => {}
                None => {
                    let init = if self.accept("=") { Some(self.init()?) } else { None };
                    add(Def::Var(Var { name, ty, init, pos }));
                }
            }
            if self.accept(";") {
                return Ok(());
            }
            if !self.accept(",") {
                return self.expected("\";\", \",\" or \"=\"");
            }
        }
    }

    pub(super) fn init(&mut self) -> Result<Init> {
        self.deeper(|this| {
            if !this.accept("{") {
                return this.expr().map(Init::One);
            }
            let mut list = Vec::new();
            while !this.accept("}") {
                list.push(this.init()?);
                if !this.accept(",") && !this.is("}") {
                    return this.expected("\",\" or \"}\"");
                }
            }
            Ok(Init::List(list))
        })
    }

    pub(super) fn is_type(&self, tok: &Tok) -> bool {
        matches!(tok, Tok::Name(name) if TYPES.contains(&&**name))
    }

    pub(super) fn base_type(&mut self) -> Result<Ty> {
        let pos = self.pos();
        while self.accept("const") || self.accept("static") {}
        let Tok::Name(word) = self.tok().clone() else { return self.expected("a definition") };
        let mut ty = match &*word {
            "unsigned" | "signed" => {
                self.at += 1;
                let unsigned = &*word == "unsigned";
                let word = match self.tok().clone() {
                    Tok::Name(word) if matches!(&*word, "char" | "short" | "int" | "long") => {
                        self.at += 1;
                        word
                    }
                    _ => "int".into(),
                };
                Ty::Prim(match (&*word, unsigned) {
                    ("char", true) => Prim::U8,
                    ("char", false) => Prim::I8,
                    ("short", true) => Prim::U16,
                    ("short", false) => Prim::I16,
                    ("long", true) => Prim::U64,
                    ("long", false) => Prim::I64,
                    (_, true) => Prim::U32,
                    (_, false) => Prim::I32,
                })
            }
            "struct" | "typename" | "enum" | "union" => {
                self.at += 1;
                let name = self.name("the name of a type")?;
                match &*word {
                    "struct" => Ty::Struct(name),
                    "enum" => Ty::INT,
                    "typename" if name == "epicsTimeStamp" || name == "TS_STAMP" => {
                        Ty::Struct("epicsTimeStamp".to_owned())
                    }
                    "typename" if matches!(name.as_str(), "pvStat" | "pvSevr" | "seqBool") => Ty::INT,
                    _ => {
                        return Err(SnlError::new(pos, format!("found {word} {name}, which is a type in C"))
                            .remedy("use struct, or the types of SNL"));
                    }
                }
            }
            word => {
                let Some(ty) = simple_type(word) else { return self.expected("a definition") };
                self.at += 1;
                ty
            }
        };
        // `long int`, `short int`, `long long`.
        if matches!(ty, Ty::Prim(Prim::I16 | Prim::U16 | Prim::I64 | Prim::U64)) {
            self.accept("long");
            self.accept("int");
            if self.accept("double") {
                ty = Ty::Prim(Prim::F64);
            }
        }
        while self.accept("const") {}
        Ok(ty)
    }

    /// The part of a declaration after the base type: pointers, the name, subscripts, parameters.
    pub(super) fn declarator(&mut self, base: Ty, named: bool) -> Result<Declared> {
        let pos = self.pos();
        let (name, mut parts) = self.declarator_parts(named)?;
        let mut params = None;
        if let Some(Part::Function(_)) = parts.first()
            && let Part::Function(list) = parts.remove(0)
        {
            params = Some(list);
        }
        // Read from the name outwards, the last part applies to the base type.
        let ty = parts.into_iter().rev().try_fold(base, |of, part| match part {
            Part::Pointer => Ok(of.ptr()),
            Part::Array(count) => Ok(Ty::Array(Box::new(of), count)),
            Part::Function(_) => Err(SnlError::new(pos, "found a pointer to a function, expected a variable")),
        })?;
        Ok(Declared { name, ty, params, pos })
    }

    /// The name of a declarator and its parts, from the name outwards.
    pub(super) fn declarator_parts(&mut self, named: bool) -> Result<(String, Vec<Part>)> {
        self.deeper(|this| {
            if this.accept("const") {
                return this.declarator_parts(named);
            }
            if this.accept("*") {
                let (name, mut parts) = this.declarator_parts(named)?;
                parts.push(Part::Pointer);
                return Ok((name, parts));
            }
            let (mut name, mut parts) = (String::new(), Vec::new());
            match this.tok() {
                Tok::Sign("(") if !this.is_type(this.ahead(1)) && this.ahead(1) != &Tok::Sign(")") => {
                    this.at += 1;
                    (name, parts) = this.declarator_parts(named)?;
                    this.need(")")?;
                }
                Tok::Name(word) if named || !RESERVED.contains(&&**word) => name = this.name("a name")?,
                _ if named => return this.expected("a name"),
                _ => {}
            }
            loop {
                let pos = this.pos();
                if parts.len() >= PARTS_MAX {
                    return Err(SnlError::new(pos, format!("found more than {PARTS_MAX} parts of a type")));
                }
                if this.accept("(") {
                    parts.push(Part::Function(this.params()?));
                } else if this.accept("[") {
                    // The size of a parameter has no meaning.
                    let size = if !named && this.is("]") { 1 } else { this.constant()? };
                    if !(1..=ELEMENTS_MAX).contains(&size) {
                        let what = format!("found {size} elements, expected 1 to {ELEMENTS_MAX}");
                        return Err(SnlError::new(pos, what));
                    }
                    parts.push(Part::Array(size as u32));
                    this.need("]")?;
                } else {
                    return Ok((name, parts));
                }
            }
        })
    }

    pub(super) fn params(&mut self) -> Result<Vec<Var>> {
        let mut params = Vec::new();
        while !self.accept(")") {
            if self.is("void") && self.ahead(1) == &Tok::Sign(")") {
                self.at += 1;
                continue;
            }
            let base = self.base_type()?;
            let Declared { name, ty, pos, .. } = self.declarator(base, false)?;
            // As in C, an array is passed as a pointer to its first element.
            let ty = match ty {
                Ty::Array(element, _) => element.ptr(),
                Ty::Str => Ty::Prim(Prim::I8).ptr(),
                ty => ty,
            };
            params.push(Var { name, ty, init: None, pos });
            if !self.accept(",") && !self.is(")") {
                return self.expected("\",\" or \")\"");
            }
        }
        Ok(params)
    }

    /// A whole number known to the parser.
    pub(super) fn constant(&mut self) -> Result<i64> {
        let expr = self.choice()?;
        match folded(&expr) {
            Some(value) => Ok(value),
            None => Err(SnlError::new(expr.pos, "expected a constant whole number")),
        }
    }
}

/// Value of an expression of whole numbers; `None` if it is not one.
fn folded(expr: &Expr) -> Option<i64> {
    Some(match &expr.kind {
        Kind::Int(value, _) => *value,
        Kind::Unary(UnOp::Minus, of) => folded(of)?.checked_neg()?,
        Kind::Unary(UnOp::Plus, of) => folded(of)?,
        Kind::Binary(op, left, right) => {
            let (left, right) = (folded(left)?, folded(right)?);
            match op {
                BinOp::Add => left.checked_add(right)?,
                BinOp::Sub => left.checked_sub(right)?,
                BinOp::Mul => left.checked_mul(right)?,
                BinOp::Div => left.checked_div(right)?,
                BinOp::Shl => left.checked_shl(u32::try_from(right).ok()?)?,
                _ => return None,
            }
        }
        Kind::Name(name) if name == "MAX_STRING_SIZE" => 40,
        Kind::SizeOfType(Ty::Str) => 40,
        _ => return None,
    })
}

fn simple_type(word: &str) -> Option<Ty> {
    Some(match word {
        "char" | "int8_t" => Ty::Prim(Prim::I8),
        "uint8_t" => Ty::Prim(Prim::U8),
        "short" | "int16_t" => Ty::Prim(Prim::I16),
        "uint16_t" => Ty::Prim(Prim::U16),
        "int" | "int32_t" => Ty::INT,
        "uint32_t" => Ty::Prim(Prim::U32),
        "long" => Ty::Prim(Prim::I64),
        "float" => Ty::Prim(Prim::F32),
        "double" => Ty::Prim(Prim::F64),
        "string" => Ty::Str,
        "evflag" => Ty::Flag,
        "void" => Ty::Void,
        _ => return None,
    })
}

const TYPES: [&str; 23] = [
    "char", "short", "int", "long", "unsigned", "signed", "float", "double", "string", "evflag", "void", "struct",
    "enum", "union", "typename", "const", "int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t", "static",
];
