//! A program as a tree.

use crate::error::Pos;

/// A number type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Prim {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl Prim {
    pub(crate) const fn size(self) -> u32 {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    pub(crate) const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// Type in which C calculates with this one.
    pub(crate) fn promoted(self) -> Self {
        if self < Self::I32 { Self::I32 } else { self }
    }
}

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ty {
    Void,
    Prim(Prim),
    /// `string`: 40 bytes.
    Str,
    Flag,
    Ptr(Box<Self>),
    Array(Box<Self>, u32),
    Struct(String),
}

impl Ty {
    pub(crate) const INT: Self = Self::Prim(Prim::I32);

    pub(crate) fn ptr(self) -> Self {
        Self::Ptr(Box::new(self))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) kind: Kind,
    pub(crate) pos: Pos,
    /// Depth of the tree, which is limited.
    pub(crate) depth: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnOp {
    Plus,
    Minus,
    Not,
    Complement,
    Address,
    Target,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Int(i64, Prim),
    Float(f64, Prim),
    Text(Vec<u8>),
    Name(String),
    Call(String, Vec<Expr>),
    Index(Box<Expr>, Box<Expr>),
    /// A member; with `true` of what a pointer points to.
    Member(Box<Expr>, String, bool),
    Unary(UnOp, Box<Expr>),
    /// `++` or `--`: by 1 or -1, and whether the result is the value before.
    Step(Box<Expr>, i8, bool),
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// `&&` (`true`) or `||`.
    Logic(bool, Box<Expr>, Box<Expr>),
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
    Assign(Option<BinOp>, Box<Expr>, Box<Expr>),
    Comma(Box<Expr>, Box<Expr>),
    Cast(Ty, Box<Expr>),
    SizeOfType(Ty),
    SizeOf(Box<Expr>),
}

/// Initial value of a variable.
#[derive(Clone, Debug)]
pub(crate) enum Init {
    One(Expr),
    List(Vec<Self>),
}

#[derive(Clone, Debug)]
pub(crate) struct Var {
    pub(crate) name: String,
    pub(crate) ty: Ty,
    pub(crate) init: Option<Init>,
    pub(crate) pos: Pos,
}

#[derive(Clone, Debug)]
pub(crate) enum Stmt {
    Expr(Expr),
    Var(Var),
    Block(Vec<Self>),
    /// Conditions with their statements, in order, and what runs otherwise.
    If(Vec<(Expr, Self)>, Option<Box<Self>>),
    While(Expr, Box<Self>),
    For(Option<Expr>, Option<Expr>, Option<Expr>, Box<Self>),
    Break(Pos),
    Continue(Pos),
    Return(Option<Expr>, Pos),
    State(String, Pos),
    Code(Pos),
}

/// The variable or the element that a definition concerns.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) index: Option<u32>,
    pub(crate) pos: Pos,
}

/// Process variables of `assign`.
#[derive(Clone, Debug)]
pub(crate) enum Names {
    One(String),
    /// One for each element.
    Each(Vec<String>),
}

#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) result: Ty,
    pub(crate) params: Vec<Var>,
    pub(crate) body: Vec<Stmt>,
    pub(crate) pos: Pos,
}

#[derive(Clone, Debug)]
pub(crate) enum Def {
    Var(Var),
    Assign(Target, Names),
    Monitor(Target),
    Sync(Target, String),
    /// With an event flag, if given, and the length of the queue.
    Queue(Target, Option<String>, u32),
    Options(Vec<(char, bool)>),
    Function(Function),
    Struct(String, Vec<(String, Ty)>, Pos),
    Code(Pos),
}

/// Where a transition leads.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    State(String, Pos),
    Exit,
}

#[derive(Clone, Debug)]
pub(crate) struct When {
    pub(crate) condition: Option<Expr>,
    pub(crate) body: Vec<Stmt>,
    pub(crate) next: Next,
    pub(crate) pos: Pos,
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) name: String,
    pub(crate) defs: Vec<Def>,
    pub(crate) entry: Option<Vec<Stmt>>,
    pub(crate) whens: Vec<When>,
    pub(crate) exit: Option<Vec<Stmt>>,
    pub(crate) pos: Pos,
}

#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(crate) name: String,
    pub(crate) defs: Vec<Def>,
    pub(crate) states: Vec<State>,
    pub(crate) pos: Pos,
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) name: String,
    pub(crate) params: String,
    pub(crate) defs: Vec<Def>,
    pub(crate) entry: Option<Vec<Stmt>>,
    pub(crate) sets: Vec<Set>,
    pub(crate) exit: Option<Vec<Stmt>>,
}
