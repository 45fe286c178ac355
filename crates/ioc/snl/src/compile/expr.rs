//! Expressions. Every expression leaves one word on the stack: a number, or an address for arrays, strings and structures.

use super::{Assigned, Compiler, Place, Symbol};
use crate::ast::{BinOp, Expr, Kind, Prim, Ty, UnOp};
use crate::builtin::{self, Builtin, Fun, Param};
use crate::code::Op;
use crate::error::{Pos, SnlError};
use crate::parse::C_CODE;

impl Compiler {
    /// The number type by which a type is represented.
    pub(super) fn prim_of(&mut self, ty: &Ty, pos: Pos) -> Prim {
        match ty {
            Ty::Prim(prim) => *prim,
            Ty::Ptr(_) => Prim::U64,
            Ty::Flag => Prim::I32,
            Ty::Void | Ty::Str | Ty::Array(..) | Ty::Struct(_) => {
                let found = self.name_of(ty);
                self.error(pos, format!("found {found}, expected a number or a pointer"));
                Prim::I32
            }
        }
    }

    fn name_of(&self, ty: &Ty) -> String {
        match ty {
            Ty::Void => "nothing (void)".to_owned(),
            Ty::Prim(Prim::F32) => "a float".to_owned(),
            Ty::Prim(Prim::F64) => "a double".to_owned(),
            Ty::Prim(_) => "a whole number".to_owned(),
            Ty::Str => "a string".to_owned(),
            Ty::Flag => "an event flag".to_owned(),
            Ty::Ptr(_) => "a pointer".to_owned(),
            Ty::Array(..) => "an array".to_owned(),
            Ty::Struct(name) => format!("struct {name}"),
        }
    }

    /// Converts the value on the stack.
    pub(super) fn convert(&mut self, from: &Ty, to: &Ty, pos: Pos) {
        let fits = match (from, to) {
            (Ty::Prim(from), Ty::Ptr(_)) => !from.is_float(),
            (Ty::Ptr(_), Ty::Prim(to)) => !to.is_float(),
            (Ty::Flag, Ty::Flag) | (Ty::Ptr(_), Ty::Ptr(_)) | (Ty::Prim(_), Ty::Prim(_)) => true,
            (Ty::Prim(from), Ty::Flag) => !from.is_float(),
            _ => false,
        };
        if !fits {
            let (from, to) = (self.name_of(from), self.name_of(to));
            return self.error(pos, format!("found {from}, expected {to}"));
        }
        let (from, to) = (self.prim_of(from, pos), self.prim_of(to, pos));
        if from != to {
            self.emit(Op::Cast(from, to), pos);
        }
    }

    pub(super) fn same_struct(&mut self, to: &Ty, from: &Ty, pos: Pos) {
        if to != from {
            let (from, to) = (self.name_of(from), self.name_of(to));
            self.error(pos, format!("found {from}, expected {to}"));
        }
    }

    /// 0 or 1.
    pub(super) fn truth(&mut self, expr: &Expr) {
        let ty = self.value(expr);
        let prim = self.prim_of(&ty, expr.pos);
        if prim.is_float() {
            self.emit(Op::Push(0), expr.pos);
            self.emit(Op::Binary(BinOp::Ne, Prim::F64), expr.pos);
        } else {
            self.emit(Op::Truth, expr.pos);
        }
    }

    fn failed(&mut self, error: SnlError) -> Ty {
        let pos = Pos { file: error.number, line: error.line };
        self.fault(error);
        self.emit(Op::Push(0), pos);
        Ty::INT
    }

    /// Loads a variable whose address is on the stack. An array becomes a pointer to its first element.
    fn load(&mut self, ty: Ty, pos: Pos) -> Ty {
        match ty {
            Ty::Array(of, _) => of.ptr(),
            Ty::Str => Ty::Prim(Prim::I8).ptr(),
            Ty::Struct(_) => ty,
            ty => {
                let prim = self.prim_of(&ty, pos);
                self.emit(Op::Load(prim), pos);
                ty
            }
        }
    }

    pub(super) fn member(&self, name: &str, member: &str) -> Option<(u32, Ty)> {
        let (_, offset, ty) = self.structs.get(name)?.members.iter().find(|(known, ..)| known == member)?;
        Some((u32::try_from(*offset).ok()?, ty.clone()))
    }

    /// The address of a variable or a part of one. Returns its type; `None` after an error.
    fn place(&mut self, expr: &Expr) -> Option<Ty> {
        let pos = expr.pos;
        match &expr.kind {
            Kind::Name(name) => match self.find(name) {
                Some(Symbol::Var(number)) => {
                    let (place, ty) = (self.vars[number].place, self.vars[number].ty.clone());
                    self.address(place, pos);
                    return Some(ty);
                }
                _ => drop(self.unknown(name, pos)),
            },
            Kind::Index(array, index) => {
                let bound = match self.type_of_name(array) {
                    Some(Ty::Array(_, count)) => Some(count),
                    Some(Ty::Str) => Some(40),
                    _ => None,
                };
                let Ty::Ptr(of) = self.value(array) else {
                    self.error(pos, "found [ ] after a value that is not an array or a pointer");
                    return None;
                };
                let found = self.value(index);
                self.convert(&found, &Ty::Prim(Prim::I64), index.pos);
                if let Some(count) = bound {
                    self.emit(Op::Bound(count), pos);
                }
                self.emit(Op::Offset(self.size(&of) as i32), pos);
                return Some(*of);
            }
            Kind::Member(of, member, through_pointer) => {
                let ty = if *through_pointer {
                    match self.value(of) {
                        Ty::Ptr(ty) => Some(*ty),
                        _ => None,
                    }
                } else {
                    Some(self.value(of))
                };
                if let Some(Ty::Struct(name)) = ty
                    && let Some((offset, ty)) = self.member(&name, member)
                {
                    self.emit(Op::Push(u64::from(offset)), pos);
                    self.emit(Op::Offset(1), pos);
                    return Some(ty);
                }
                self.error(pos, format!("found .{member}, which is not a member of a structure of SNL"));
            }
            Kind::Unary(UnOp::Target, of) => match self.value(of) {
                Ty::Ptr(ty) if *ty != Ty::Void => return Some(*ty),
                _ => self.error(pos, "found * in front of a value that is not a pointer"),
            },
            _ => self.error(pos, "found a value, expected a variable"),
        }
        None
    }

    /// The declared type of a variable or an element, without code.
    fn type_of_name(&self, expr: &Expr) -> Option<Ty> {
        match &expr.kind {
            Kind::Name(name) => match self.find(name)? {
                Symbol::Var(number) => Some(self.vars[number].ty.clone()),
                Symbol::Flag(_) => None,
            },
            Kind::Index(array, _) => match self.type_of_name(array)? {
                Ty::Array(of, _) => Some(*of),
                _ => None,
            },
            _ => None,
        }
    }

    fn unknown(&mut self, name: &str, pos: Pos) -> Ty {
        let what = format!("found {name}, which is not declared");
        self.failed(SnlError::new(pos, what).remedy("declare it in SNL, or with #define; names in C code are unknown"))
    }

    /// Puts the value of an expression on the stack. Returns its type.
    pub(super) fn value(&mut self, expr: &Expr) -> Ty {
        let pos = expr.pos;
        match &expr.kind {
            Kind::Int(value, prim) => {
                self.emit(Op::Push(*value as u64), pos);
                Ty::Prim(*prim)
            }
            Kind::Float(value, prim) => {
                self.emit(Op::Push(value.to_bits()), pos);
                Ty::Prim(*prim)
            }
            Kind::Text(bytes) => {
                let address = self.text(bytes, pos);
                self.emit(Op::Push(u64::from(address)), pos);
                Ty::Prim(Prim::I8).ptr()
            }
            Kind::Name(name) => match (self.find(name), builtin::constant(name)) {
                (Some(Symbol::Flag(number)), _) => {
                    self.emit(Op::Push(u64::from(number)), pos);
                    Ty::Flag
                }
                (None, Some((word, ty))) => {
                    self.emit(Op::Push(word), pos);
                    ty
                }
                (None, None) => self.unknown(name, pos),
                (Some(Symbol::Var(_)), _) => self.loaded(expr),
            },
            Kind::Index(..) | Kind::Member(..) | Kind::Unary(UnOp::Target, _) => self.loaded(expr),
            Kind::Call(name, arguments) => self.call(name, arguments, pos),
            Kind::Unary(UnOp::Address, of) => match self.place(of) {
                Some(ty) => ty.ptr(),
                None => Ty::INT,
            },
            Kind::Unary(op, of) => self.unary(*op, of, pos),
            Kind::Step(of, by, after) => self.step(of, i32::from(*by), *after, pos),
            Kind::Binary(op, left, right) => self.binary(*op, left, right, pos),
            Kind::Logic(and, left, right) => {
                self.truth(left);
                if !and {
                    self.emit(Op::Not, pos);
                }
                let short = self.jump(Op::JumpZero(0), pos);
                self.truth(right);
                let end = self.jump(Op::Jump(0), pos);
                self.land(short);
                self.emit(Op::Push(u64::from(!and)), pos);
                self.land(end);
                Ty::INT
            }
            Kind::Choice(condition, yes, no) => self.choice(condition, yes, no, pos),
            Kind::Assign(op, left, right) => self.assignment(*op, left, right, pos),
            Kind::Comma(left, right) => {
                self.value(left);
                self.emit(Op::Pop, pos);
                self.value(right)
            }
            Kind::Cast(ty, of) => {
                let found = self.value(of);
                match (ty, &found) {
                    (Ty::Void, _) => {}
                    _ => self.convert(&found, ty, pos),
                }
                ty.clone()
            }
            Kind::SizeOfType(ty) => self.size_of(&ty.clone(), pos),
            Kind::SizeOf(of) => {
                // Only the type is needed, not the code.
                let (len, ops) = (self.unit.ops.len(), self.ops);
                let text = match &of.kind {
                    Kind::Text(bytes) => Some(Ty::Array(Box::new(Ty::Prim(Prim::I8)), bytes.len() as u32 + 1)),
                    _ => None,
                };
                let ty = text.or_else(|| self.type_of_name(of)).unwrap_or_else(|| self.value(of));
                self.unit.ops.truncate(len);
                self.unit.places.truncate(len);
                self.ops = ops;
                self.size_of(&ty, pos)
            }
        }
    }

    fn size_of(&mut self, ty: &Ty, pos: Pos) -> Ty {
        let size = self.size(ty);
        self.emit(Op::Push(u64::from(size)), pos);
        Ty::Prim(Prim::U64)
    }

    fn loaded(&mut self, expr: &Expr) -> Ty {
        match self.place(expr) {
            Some(ty) => self.load(ty, expr.pos),
            None => Ty::INT,
        }
    }

    fn unary(&mut self, op: UnOp, of: &Expr, pos: Pos) -> Ty {
        if op == UnOp::Not {
            self.truth(of);
            self.emit(Op::Not, pos);
            return Ty::INT;
        }
        let ty = self.value(of);
        let prim = self.prim_of(&ty, pos);
        let class = prim.promoted();
        if op == UnOp::Minus {
            self.emit(Op::Negate(class), pos);
        } else if op == UnOp::Complement {
            if prim.is_float() {
                self.error(pos, "found ~ in front of a floating-point number, expected a whole number");
            }
            self.emit(Op::Complement(class), pos);
        }
        Ty::Prim(class)
    }

    fn step(&mut self, of: &Expr, by: i32, after: bool, pos: Pos) -> Ty {
        let Some(ty) = self.place(of) else { return Ty::INT };
        let size = match &ty {
            Ty::Ptr(of) => self.size(of) as i32,
            _ => 1,
        };
        let prim = self.prim_of(&ty, pos);
        self.emit(Op::Step(prim, by.saturating_mul(size), after), pos);
        ty
    }

    fn binary(&mut self, op: BinOp, left: &Expr, right: &Expr, pos: Pos) -> Ty {
        let compares = matches!(op, BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge);
        let left = self.value(left);
        let right_pos = right.pos;
        let right = self.value(right);
        match (&left, &right, op) {
            (Ty::Ptr(of), Ty::Prim(prim), BinOp::Add | BinOp::Sub) if !prim.is_float() => {
                let size = self.size(of) as i32;
                self.emit(Op::Offset(if op == BinOp::Add { size } else { size.saturating_neg() }), pos);
                return left;
            }
            (Ty::Prim(prim), Ty::Ptr(of), BinOp::Add) if !prim.is_float() => {
                self.emit(Op::Swap, pos);
                self.emit(Op::Offset(self.size(of) as i32), pos);
                return right;
            }
            (Ty::Ptr(of), Ty::Ptr(_), BinOp::Sub) => {
                self.emit(Op::Binary(BinOp::Sub, Prim::I64), pos);
                self.emit(Op::Push(u64::from(self.size(of).max(1))), pos);
                self.emit(Op::Binary(BinOp::Div, Prim::I64), pos);
                return Ty::Prim(Prim::I64);
            }
            (Ty::Ptr(_), _, _) | (_, Ty::Ptr(_), _) if !compares => {
                self.error(pos, "found a pointer, expected a number");
            }
            _ => {}
        }
        let (left, right) = (self.prim_of(&left, pos), self.prim_of(&right, right_pos));
        let class = self.arithmetic(op, left, right, pos);
        if compares { Ty::INT } else { Ty::Prim(class) }
    }

    /// Calculates with the two words on the stack. Returns the type of the calculation.
    fn arithmetic(&mut self, op: BinOp, left: Prim, right: Prim, pos: Pos) -> Prim {
        let shifts = matches!(op, BinOp::Shl | BinOp::Shr);
        let class = if shifts { left.promoted() } else { left.promoted().max(right.promoted()) };
        let whole = shifts || matches!(op, BinOp::Rem | BinOp::And | BinOp::Or | BinOp::Xor);
        if whole && (class.is_float() || right.is_float()) {
            self.error(pos, "found a floating-point number, expected a whole number");
            return Prim::I32;
        }
        let right_class = if shifts { Prim::I64 } else { class };
        if right != right_class {
            self.emit(Op::Cast(right, right_class), pos);
        }
        if left != class {
            self.emit(Op::CastUnder(left, class), pos);
        }
        self.emit(Op::Binary(op, class), pos);
        class
    }

    fn choice(&mut self, condition: &Expr, yes: &Expr, no: &Expr, pos: Pos) -> Ty {
        self.truth(condition);
        let to_no = self.jump(Op::JumpZero(0), pos);
        let first = self.value(yes);
        // The common type is known after the second value.
        let slot = self.jump(Op::Nop, pos);
        let end = self.jump(Op::Jump(0), pos);
        self.land(to_no);
        let second = self.value(no);
        let ty = match (&first, &second) {
            (Ty::Prim(left), Ty::Prim(right)) => {
                let (left, right) = (*left, *right);
                let class = left.promoted().max(right.promoted());
                if let Some(op) = self.unit.ops.get_mut(slot) {
                    *op = Op::Cast(left, class);
                }
                self.emit(Op::Cast(right, class), pos);
                Ty::Prim(class)
            }
            (Ty::Prim(_), Ty::Ptr(_)) => second,
            _ => first,
        };
        self.land(end);
        ty
    }

    fn assignment(&mut self, op: Option<BinOp>, left: &Expr, right: &Expr, pos: Pos) -> Ty {
        let Some(ty) = self.place(left) else { return Ty::INT };
        match &ty {
            Ty::Struct(_) if op.is_none() => {
                let found = self.value(right);
                self.same_struct(&ty, &found, pos);
                self.emit(Op::Copy(self.size(&ty)), pos);
                return ty;
            }
            Ty::Str | Ty::Array(..) => {
                let what = "found an assignment to a string or an array, which C does not have";
                return self
                    .failed(SnlError::new(pos, what).remedy("use strcpy(to, from), or a loop over the elements"));
            }
            _ => {}
        }
        let prim = self.prim_of(&ty, pos);
        let Some(op) = op else {
            let found = self.value(right);
            self.convert(&found, &ty, pos);
            self.emit(Op::Store(prim), pos);
            return ty;
        };
        self.emit(Op::Dup, pos);
        self.emit(Op::Load(prim), pos);
        let found = self.value(right);
        if let (Ty::Ptr(of), BinOp::Add | BinOp::Sub) = (&ty, op) {
            let size = self.size(of) as i32;
            self.convert(&found, &Ty::Prim(Prim::I64), pos);
            self.emit(Op::Offset(if op == BinOp::Add { size } else { size.saturating_neg() }), pos);
        } else {
            let right = self.prim_of(&found, pos);
            let class = self.arithmetic(op, prim, right, pos);
            self.emit(Op::Cast(class, prim), pos);
        }
        self.emit(Op::Store(prim), pos);
        ty
    }

    fn call(&mut self, name: &str, arguments: &[Expr], pos: Pos) -> Ty {
        if let Some(known) = self.functions.get(name) {
            let (unit, result, params) = (known.unit, known.result.clone(), known.params.clone());
            if params.len() != arguments.len() {
                let what = format!("found {} arguments of {name}, expected {}", arguments.len(), params.len());
                return self.failed(SnlError::new(pos, what));
            }
            for (argument, param) in arguments.iter().zip(&params) {
                let found = self.value(argument);
                self.convert(&found, param, argument.pos);
            }
            self.emit(Op::Call(unit), pos);
            return result;
        }
        let Some(builtin) = builtin::find(name) else {
            let what = format!("found a call of {name}, which is not a supported function of SNL or of C's library");
            return self.failed(SnlError::new(pos, what).remedy(C_CODE));
        };
        self.builtin(&builtin, arguments, pos)
    }

    fn builtin(&mut self, builtin: &Builtin, arguments: &[Expr], pos: Pos) -> Ty {
        // Until version 2.1, these functions took arrays of channels, with the further arguments of the newer ones.
        let newer = match builtin.fun {
            Fun::PvGetComplete => builtin::find("pvArrayGetComplete"),
            Fun::PvPutComplete => builtin::find("pvArrayPutComplete"),
            _ => None,
        };
        if let (Some(newer), Some(Expr { kind: Kind::Name(array), .. })) = (newer, arguments.first())
            && let Some(Symbol::Var(number)) = self.find(array)
            && let Assigned::Each(_, count) = self.vars[number].assigned
        {
            let mut arguments = arguments.to_vec();
            arguments.insert(1, Expr { kind: Kind::Int(i64::from(count), Prim::U32), pos, depth: 1 });
            return self.builtin(&newer, &arguments, pos);
        }
        let Builtin { fun, name, result, required, params } = builtin;
        if *fun == Fun::Delay && !self.context.is_condition {
            let what = "found delay outside of the condition of a \"when\"";
            return self.failed(SnlError::new(pos, what).remedy("use a state with \"when (delay(SECONDS))\""));
        }
        let variadic = params.last() == Some(&Param::More);
        if arguments.len() < *required || arguments.len() > params.len() && !variadic || arguments.len() > 32 {
            let what = format!("found {} arguments of {name}, expected {}", arguments.len(), builtin.expected());
            return self.failed(SnlError::new(pos, what));
        }
        let mut floats = 0u32;
        for (nth, argument) in arguments.iter().enumerate() {
            let param = params.get(nth).filter(|param| **param != Param::More).copied().unwrap_or(Param::More);
            match param {
                Param::Channel => self.channel_of(argument, name, false),
                Param::Channels => self.channel_of(argument, name, true),
                Param::More => {
                    let found = self.value(argument);
                    let prim = self.prim_of(&found, argument.pos);
                    if prim.is_float() {
                        floats |= 1 << nth;
                    }
                }
                Param::Is(ty) => {
                    let found = self.value(argument);
                    let ty = ty.ty();
                    if found == Ty::Flag && ty == Ty::INT {
                        self.error(argument.pos, "found an event flag, expected a number");
                    }
                    self.convert(&found, &ty, argument.pos);
                }
            }
        }
        self.emit(Op::Builtin(*fun, arguments.len() as u8, floats), pos);
        if matches!(fun, Fun::Atoi | Fun::Abs) && *result == builtin::Type::Int {
            self.emit(Op::Cast(Prim::I64, Prim::I32), pos);
        }
        result.ty()
    }

    /// Puts the number of a channel on the stack: of a variable or element that is assigned, or the first of an array whose
    /// elements are.
    fn channel_of(&mut self, expr: &Expr, function: &str, whole: bool) {
        let pos = expr.pos;
        let assigned = |this: &Self, name: &str| match this.find(name) {
            Some(Symbol::Var(number)) if matches!(this.vars[number].place, Place::Data(_)) => {
                this.vars[number].assigned
            }
            _ => Assigned::No,
        };
        match &expr.kind {
            Kind::Name(name) => match assigned(self, name) {
                Assigned::Whole(channel) if !whole => return self.emit(Op::Push(u64::from(channel)), pos),
                Assigned::Each(first, _) if whole => return self.emit(Op::Push(u64::from(first)), pos),
                Assigned::Each(..) => {
                    let what = format!("found {name}, whose elements are assigned separately, expected an element");
                    return self.fault(SnlError::new(pos, what).remedy("call the function for each element in a loop"));
                }
                _ => {}
            },
            Kind::Index(array, index) if !whole => {
                if let Kind::Name(name) = &array.kind
                    && let Assigned::Each(first, count) = assigned(self, name)
                {
                    let found = self.value(index);
                    self.convert(&found, &Ty::Prim(Prim::I64), pos);
                    return self.emit(Op::Channel(first, count), pos);
                }
            }
            _ => {}
        }
        let what = format!("found an argument of {function} that is not assigned to a process variable");
        self.fault(
            SnlError::new(pos, what).remedy("put \"assign NAME to \\\"PV\\\";\" at the declaration of the variable"),
        );
    }
}
