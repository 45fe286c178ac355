//! Compiler: a tree to a [`Program`]. It reports every error of the program, up to a limit.

mod define;
mod expr;
mod stmt;

use crate::ast::{Prim, Stmt, Tree, Ty};
use crate::code::{Op, Program, SetDef, StateDef, Unit, WhenDef};
use crate::error::{Pos, SnlError};
use crate::memory::{CONSTANTS, DATA, DATA_MAX};
use crate::parse::C_CODE;
use std::collections::HashMap;

/// Maximum number of reported errors.
const ERRORS_MAX: usize = 50;
/// Unused bytes after a text or array.
const SLACK: u64 = 24;
/// Maximum number of channels.
const CHANNELS_MAX: usize = 100_000;
/// Maximum number of instructions.
const OPS_MAX: usize = 4_000_000;
/// Maximum number of bytes of all texts.
const TEXTS_MAX: usize = 16 << 20;
/// Maximum number of state sets.
const SETS_MAX: usize = 1_000;
/// Maximum number of bytes of all copies of the variables, in safe mode, and of all queues.
const COPIES_MAX: u64 = 256 << 20;
/// Number of bytes as which a larger type counts.
const SIZE_MAX: u64 = 1 << 40;

/// Where a variable is.
#[derive(Clone, Copy, Debug)]
enum Place {
    Data(u32),
    Local(u32),
}

/// The channels of a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Assigned {
    No,
    /// One for the whole variable.
    Whole(u32),
    /// One for each element.
    Each(u32, u32),
}

#[derive(Clone, Debug)]
struct VarInfo {
    name: String,
    ty: Ty,
    place: Place,
    assigned: Assigned,
}

#[derive(Clone, Copy, Debug)]
enum Symbol {
    Var(usize),
    Flag(u32),
}

/// A structure: its members with their offsets, its size and its alignment.
#[derive(Clone, Debug, Default)]
struct Layout {
    members: Vec<(String, u64, Ty)>,
    size: u64,
    align: u32,
}

struct Signature {
    unit: u32,
    result: Ty,
    params: Vec<Ty>,
}

/// Where the code being compiled belongs.
#[derive(Clone, Debug, Default)]
struct Context {
    /// States of the state set, if a transition may name one.
    states: Vec<String>,
    is_action: bool,
    is_condition: bool,
    result: Option<Ty>,
}

pub(crate) struct Compiler {
    program: Program,
    errors: Vec<SnlError>,
    vars: Vec<VarInfo>,
    scopes: Vec<HashMap<String, Symbol>>,
    structs: HashMap<String, Layout>,
    functions: HashMap<String, Signature>,
    texts: HashMap<Vec<u8>, u32>,
    unit: Unit,
    init: Unit,
    /// End of the local variables in scope.
    local_end: u32,
    /// Jumps to be set at the end of each open loop: of `break` and of `continue`.
    loops: Vec<(Vec<usize>, Vec<usize>)>,
    context: Context,
    ops: usize,
    /// Bytes of all queues.
    queued: u64,
}

/// Compiles a program.
pub(crate) fn compile(tree: &Tree, files: Vec<String>) -> Result<Program, Vec<SnlError>> {
    let program = Program {
        name: tree.name.clone(),
        params: tree.params.clone(),
        files,
        constants: Vec::new(),
        data_len: 0,
        channels: Vec::new(),
        queues: Vec::new(),
        flags: Vec::new(),
        options: vec!['c', 'e'],
        units: Vec::new(),
        init: 0,
        entry: None,
        exit: None,
        sets: Vec::new(),
    };
    let stamp = [("secPastEpoch", 0), ("nsec", 4)].map(|(name, at)| (name.to_owned(), at, Ty::Prim(Prim::U32)));
    let stamp = Layout { members: stamp.to_vec(), size: 8, align: 4 };
    let mut compiler = Compiler {
        program,
        errors: Vec::new(),
        vars: Vec::new(),
        scopes: vec![HashMap::new()],
        structs: HashMap::from([("epicsTimeStamp".to_owned(), stamp)]),
        functions: HashMap::new(),
        texts: HashMap::new(),
        unit: Unit::default(),
        init: Unit::default(),
        local_end: 0,
        loops: Vec::new(),
        context: Context::default(),
        ops: 0,
        queued: 0,
    };
    compiler.tree(tree);
    if compiler.errors.is_empty() { Ok(compiler.program) } else { Err(compiler.errors) }
}

impl Compiler {
    fn error(&mut self, pos: Pos, what: impl Into<String>) {
        self.fault(SnlError::new(pos, what));
    }

    fn fault(&mut self, error: SnlError) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error);
        }
    }

    fn embedded(&mut self, pos: Pos) {
        let what = "found embedded C code, expected SNL: programs are interpreted, and no C compiler is run";
        self.fault(SnlError::new(pos, what).remedy(C_CODE));
    }

    fn emit(&mut self, op: Op, pos: Pos) {
        if self.ops >= OPS_MAX {
            if self.ops == OPS_MAX {
                self.ops += 1;
                self.error(pos, format!("found more than {OPS_MAX} instructions"));
            }
            return;
        }
        self.ops += 1;
        self.unit.ops.push(op);
        self.unit.places.push(pos);
    }

    fn here(&self) -> u32 {
        self.unit.ops.len() as u32
    }

    /// Emits a jump whose target is set later.
    fn jump(&mut self, op: Op, pos: Pos) -> usize {
        self.emit(op, pos);
        self.unit.ops.len().saturating_sub(1)
    }

    /// Lets a jump lead to the next instruction.
    fn land(&mut self, jump: usize) {
        let here = self.here();
        if let Some(Op::Jump(target) | Op::JumpZero(target)) = self.unit.ops.get_mut(jump) {
            *target = here;
        }
    }

    /// Address of a constant text.
    fn text(&mut self, bytes: &[u8], pos: Pos) -> u32 {
        if let Some(address) = self.texts.get(bytes) {
            return *address;
        }
        if self.program.constants.len() + bytes.len() >= TEXTS_MAX {
            self.error(pos, format!("found texts of more than {TEXTS_MAX} bytes"));
            return CONSTANTS;
        }
        let address = CONSTANTS + self.program.constants.len() as u32;
        self.program.constants.extend_from_slice(bytes);
        self.program.constants.push(0);
        self.texts.insert(bytes.to_vec(), address);
        address
    }

    /// Size and alignment of a type; 0 if it has none.
    fn layout(&self, ty: &Ty) -> (u64, u32) {
        match ty {
            Ty::Void => (0, 1),
            Ty::Prim(prim) => (u64::from(prim.size()), prim.size()),
            Ty::Str => (40, 1),
            Ty::Flag => (4, 4),
            Ty::Ptr(_) => (8, 8),
            Ty::Array(of, count) => {
                let (size, align) = self.layout(of);
                (size.saturating_mul(u64::from(*count)).min(SIZE_MAX), align)
            }
            Ty::Struct(name) => self.structs.get(name).map_or((0, 1), |layout| (layout.size, layout.align.max(1))),
        }
    }

    fn size(&self, ty: &Ty) -> u32 {
        u32::try_from(self.layout(ty).0).unwrap_or(u32::MAX)
    }

    /// Size and alignment of a variable. A text or array that is written slightly beyond its end hits no other variable, as
    /// usually in C, which aligns them.
    fn room(&self, ty: &Ty) -> (u64, u32) {
        let (size, align) = self.layout(ty);
        let slack = if matches!(ty, Ty::Str | Ty::Array(..)) { SLACK } else { 0 };
        (size + slack, align)
    }

    /// Room for a variable that lives as long as the program.
    fn data(&mut self, ty: &Ty, pos: Pos) -> u32 {
        let (size, align) = self.room(ty);
        let at = u64::from(self.program.data_len).next_multiple_of(u64::from(align));
        match u32::try_from(at + size).ok().filter(|end| *end <= DATA_MAX) {
            Some(end) => self.program.data_len = end,
            None => self.error(pos, format!("found variables of more than {DATA_MAX} bytes")),
        }
        DATA + at as u32
    }

    /// Room for a local variable.
    fn local(&mut self, ty: &Ty, pos: Pos) -> u32 {
        let (size, align) = self.room(ty);
        let at = u64::from(self.local_end).next_multiple_of(u64::from(align));
        match u32::try_from(at + size).ok().filter(|end| *end as usize <= crate::memory::STACK_LEN / 2) {
            Some(end) => self.local_end = end,
            None => self.error(pos, "found local variables of more than 512 KiB, expected them outside of the block"),
        }
        self.unit.frame = self.unit.frame.max(self.local_end);
        at as u32
    }

    fn find(&self, name: &str) -> Option<Symbol> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).copied()
    }

    fn declare(&mut self, name: &str, symbol: Symbol, pos: Pos) {
        let scope = self.scopes.last_mut();
        if scope.is_some_and(|scope| scope.insert(name.to_owned(), symbol).is_some()) {
            self.error(pos, format!("found a second declaration of {name} in the same block"));
        }
    }

    /// Compiles a piece of code on its own. Returns its number.
    fn unit(&mut self, compile: impl FnOnce(&mut Self)) -> u32 {
        let before = std::mem::take(&mut self.unit);
        let (end, loops) = (std::mem::take(&mut self.local_end), std::mem::take(&mut self.loops));
        compile(self);
        let unit = std::mem::replace(&mut self.unit, before);
        (self.local_end, self.loops) = (end, loops);
        self.program.units.push(unit);
        self.program.units.len() as u32 - 1
    }

    fn finish(&mut self, pos: Pos) {
        self.emit(Op::Push(0), pos);
        self.emit(Op::Return, pos);
    }

    fn block_unit(&mut self, body: &[Stmt], pos: Pos, context: Context) -> u32 {
        self.context = context;
        self.unit(|this| {
            this.block(body);
            this.finish(pos);
        })
    }

    fn tree(&mut self, tree: &Tree) {
        let start = Pos { file: 0, line: 1 };
        self.definitions(&tree.defs, None);
        self.function_bodies(&tree.defs);
        self.program.entry = tree.entry.as_ref().map(|body| self.block_unit(body, start, Context::default()));
        let mut names: Vec<&str> = Vec::new();
        for set in &tree.sets {
            if names.contains(&set.name.as_str()) {
                self.error(set.pos, format!("found a second state set {}", set.name));
            }
            names.push(&set.name);
            self.set(set);
        }
        if let Some(set) = tree.sets.get(SETS_MAX) {
            self.error(set.pos, format!("found {} state sets, expected at most {SETS_MAX}", tree.sets.len()));
        }
        self.program.exit = tree.exit.as_ref().map(|body| self.block_unit(body, start, Context::default()));
        let mut init = std::mem::take(&mut self.init);
        init.ops.extend([Op::Push(0), Op::Return]);
        init.places.extend([start, start]);
        self.program.units.push(init);
        self.program.init = self.program.units.len() as u32 - 1;
        if self.program.has_option('s') {
            self.program.options.push('r');
            let (sets, len) = (tree.sets.len(), u64::from(self.program.data_len));
            if len.saturating_mul(sets as u64 + 1) > COPIES_MAX {
                let what = format!(
                    "found {len} bytes of variables for each of {sets} state sets, expected at most {COPIES_MAX} in all"
                );
                self.fault(SnlError::new(start, what).remedy("use fewer or smaller variables, or not the option +s"));
            }
        }
    }

    fn set(&mut self, set: &crate::ast::Set) {
        self.scopes.push(HashMap::new());
        self.definitions(&set.defs, Some(&set.name));
        let names: Vec<String> = set.states.iter().map(|state| state.name.clone()).collect();
        let mut states = Vec::new();
        for (nth, state) in set.states.iter().enumerate() {
            if names[..nth].contains(&state.name) {
                self.error(state.pos, format!("found a second state {} in state set {}", state.name, set.name));
            }
            let compiled = self.state(state, &names);
            states.push(compiled);
        }
        self.program.sets.push(SetDef { name: set.name.clone(), states });
        self.scopes.pop();
    }

    fn state(&mut self, state: &crate::ast::State, names: &[String]) -> StateDef {
        self.scopes.push(HashMap::new());
        let options = self.definitions(&state.defs, Some(&state.name));
        let option = |letter: char| options.iter().rev().find(|(found, _)| *found == letter).is_none_or(|(_, on)| *on);
        let mut def = StateDef {
            name: state.name.clone(),
            entry: None,
            exit: None,
            whens: Vec::new(),
            resets_delays: option('t'),
            entry_each_time: !option('e'),
            exit_each_time: !option('x'),
        };
        let context = Context { states: names.to_vec(), ..Context::default() };
        def.entry = state.entry.as_ref().map(|body| self.block_unit(body, state.pos, context.clone()));
        for when in &state.whens {
            self.context = Context { is_condition: true, ..context.clone() };
            let condition = self.unit(|this| {
                match &when.condition {
                    Some(condition) => this.truth(condition),
                    None => this.emit(Op::Push(1), when.pos),
                }
                this.emit(Op::Return, when.pos);
            });
            let action = Context { is_action: true, ..context.clone() };
            let action = self.block_unit(&when.body, when.pos, action);
            let next = match &when.next {
                crate::ast::Next::Exit => None,
                crate::ast::Next::State(name, pos) => {
                    let found = names.iter().position(|state| state == name);
                    if found.is_none() {
                        self.unknown_state(name, *pos);
                    }
                    found.map(|found| found as u32)
                }
            };
            def.whens.push(WhenDef { condition, action, next });
        }
        def.exit = state.exit.as_ref().map(|body| self.block_unit(body, state.pos, context));
        self.scopes.pop();
        def
    }

    fn unknown_state(&mut self, name: &str, pos: Pos) {
        let states = self.context.states.join(", ");
        self.error(pos, format!("found state {name}, expected a state of the same state set: {states}"));
    }
}
