//! Definitions: variables, channels, event flags, functions.

use super::{
    Assigned, CHANNELS_MAX, COPIES_MAX, Compiler, Context, Layout, Place, SIZE_MAX, Signature, Symbol, VarInfo,
};
use crate::ast::{Def, Function, Init, Kind, Names, Prim, Target, Ty, Var};
use crate::code::{ChannelDef, Element, Op};
use crate::error::{Pos, SnlError};

impl Compiler {
    /// Definitions of the program (without `owner`), a state set or a state. Returns the options of a state.
    pub(super) fn definitions(&mut self, defs: &[Def], owner: Option<&str>) -> Vec<(char, bool)> {
        let mut options = Vec::new();
        for def in defs {
            match def {
                Def::Var(var) => self.global(var),
                Def::Assign(target, names) => self.assign(target, names),
                Def::Monitor(target) => {
                    for channel in self.channels_of(target, "monitored") {
                        self.program.channels[channel].monitored = true;
                    }
                }
                Def::Sync(target, flag) => self.sync(target, flag),
                Def::Queue(target, flag, size) => {
                    let queue = self.program.queues.len();
                    self.program.queues.push(*size);
                    let mut bytes = 0;
                    for channel in self.channels_of(target, "queued") {
                        let def = &mut self.program.channels[channel];
                        def.queue = Some(queue);
                        bytes = u64::from(def.element.size()) * u64::from(def.count);
                    }
                    self.queued = self.queued.saturating_add(bytes.saturating_mul(u64::from(*size)));
                    if self.queued > COPIES_MAX {
                        let what = format!("found queues of more than {COPIES_MAX} bytes");
                        self.fault(SnlError::new(target.pos, what).remedy("use a shorter queue"));
                    }
                    if let Some(flag) = flag {
                        self.sync(target, flag);
                    }
                }
                Def::Options(letters) if owner.is_none() => {
                    for (letter, on) in letters {
                        self.program.options.retain(|known| known != letter);
                        if *on {
                            self.program.options.push(*letter);
                        }
                    }
                }
                Def::Options(letters) => options.extend(letters),
                Def::Function(function) => self.signature(function),
                Def::Struct(name, members, pos) => self.structure(name, members, *pos),
                Def::Code(pos) => self.embedded(*pos),
            }
        }
        options
    }

    /// Places the members of a structure. Pointers may point to structures that are defined later.
    fn structure(&mut self, name: &str, members: &[(String, Ty)], pos: Pos) {
        if self.structs.insert(name.to_owned(), Layout::default()).is_some() {
            return self.error(pos, format!("found a second struct {name}"));
        }
        let mut layout = Layout { align: 1, ..Layout::default() };
        for (member, ty) in members {
            let mut of = ty;
            while let Ty::Array(inner, _) = of {
                of = inner;
            }
            if !matches!(of, Ty::Ptr(_)) && !self.check_type(ty, pos) {
                return;
            }
            let (size, align) = self.layout(ty);
            let at = layout.size.next_multiple_of(u64::from(align));
            layout.members.push((member.clone(), at, ty.clone()));
            (layout.size, layout.align) = ((at + size).min(SIZE_MAX), layout.align.max(align));
        }
        layout.size = layout.size.next_multiple_of(u64::from(layout.align));
        self.structs.insert(name.to_owned(), layout);
    }

    fn check_type(&mut self, ty: &Ty, pos: Pos) -> bool {
        let mut of = ty;
        while let Ty::Array(inner, _) | Ty::Ptr(inner) = of {
            of = inner;
        }
        let what = match of {
            Ty::Flag => "found an array of or a pointer to event flags, expected one event flag".to_owned(),
            Ty::Struct(name) if !self.structs.contains_key(name) => {
                format!("found struct {name}, which is not defined in SNL")
            }
            _ if self.layout(ty).0 == 0 => "found a variable without size, expected a type of SNL".to_owned(),
            _ => return true,
        };
        self.fault(SnlError::new(pos, what).remedy("use a type of SNL, or a structure that is defined before"));
        false
    }

    /// A variable that lives as long as the program.
    fn global(&mut self, var: &Var) {
        if var.ty == Ty::Flag {
            if var.init.is_some() {
                self.error(var.pos, "found an initial value of an event flag, expected none: it is clear at the start");
            }
            self.program.flags.push(var.name.clone());
            let number = self.program.flags.len() as u32;
            return self.declare(&var.name, Symbol::Flag(number), var.pos);
        }
        if !self.check_type(&var.ty, var.pos) {
            return;
        }
        let address = self.data(&var.ty, var.pos);
        self.vars.push(VarInfo {
            name: var.name.clone(),
            ty: var.ty.clone(),
            place: Place::Data(address),
            assigned: Assigned::No,
        });
        self.declare(&var.name, Symbol::Var(self.vars.len() - 1), var.pos);
        if let Some(init) = &var.init {
            self.context = Context::default();
            std::mem::swap(&mut self.unit, &mut self.init);
            self.initial(Place::Data(address), &var.ty, init, var.pos);
            std::mem::swap(&mut self.unit, &mut self.init);
        }
    }

    /// A variable of a block.
    pub(super) fn local_variable(&mut self, var: &Var) {
        if var.ty == Ty::Flag {
            return self.error(var.pos, "found an event flag in a block, expected it outside of blocks");
        }
        if !self.check_type(&var.ty, var.pos) {
            return;
        }
        let offset = self.local(&var.ty, var.pos);
        if let Some(init) = &var.init {
            self.initial(Place::Local(offset), &var.ty, init, var.pos);
        }
        self.vars.push(VarInfo {
            name: var.name.clone(),
            ty: var.ty.clone(),
            place: Place::Local(offset),
            assigned: Assigned::No,
        });
        self.declare(&var.name, Symbol::Var(self.vars.len() - 1), var.pos);
    }

    pub(super) fn address(&mut self, place: Place, pos: Pos) {
        match place {
            Place::Data(address) => self.emit(Op::Push(u64::from(address)), pos),
            Place::Local(offset) => self.emit(Op::Local(offset), pos),
        }
    }

    /// Sets the initial value of a variable or a part of it.
    fn initial(&mut self, place: Place, ty: &Ty, init: &Init, pos: Pos) {
        let part = |by: u32| match place {
            Place::Data(address) => Place::Data(address.saturating_add(by)),
            Place::Local(offset) => Place::Local(offset.saturating_add(by)),
        };
        match (ty, init) {
            (Ty::Str, Init::One(expr)) => self.initial_text(place, 40, expr),
            (Ty::Array(of, count), Init::One(expr)) if matches!(**of, Ty::Prim(Prim::I8 | Prim::U8)) => {
                self.initial_text(place, *count, expr);
            }
            (Ty::Array(of, count), Init::List(list)) => {
                if list.len() > *count as usize {
                    self.error(pos, format!("found {} initial values, expected at most {count}", list.len()));
                }
                if matches!(place, Place::Local(_)) {
                    self.address(place, pos);
                    self.emit(Op::Zero(self.size(ty)), pos);
                }
                let size = self.size(of);
                for (nth, one) in list.iter().enumerate().take(*count as usize) {
                    self.initial(part((nth as u32).saturating_mul(size)), of, one, pos);
                }
            }
            (Ty::Struct(name), Init::List(list)) => {
                let members = self.structs.get(name).cloned().unwrap_or_default().members;
                for (one, (_, offset, ty)) in list.iter().zip(members) {
                    self.initial(part(u32::try_from(offset).unwrap_or(u32::MAX)), &ty, one, pos);
                }
            }
            (_, Init::List(list)) if list.len() == 1 => self.initial(place, ty, &list[0], pos),
            (Ty::Array(..), Init::One(_)) | (_, Init::List(_)) => {
                self.error(pos, "found an initial value that does not fit its variable");
            }
            (ty, Init::One(expr)) => {
                self.address(place, pos);
                let found = self.value(expr);
                if let Ty::Struct(_) = ty {
                    self.same_struct(ty, &found, pos);
                    self.emit(Op::Copy(self.size(ty)), pos);
                } else {
                    self.convert(&found, ty, pos);
                    let prim = self.prim_of(ty, pos);
                    self.emit(Op::Store(prim), pos);
                }
                self.emit(Op::Pop, pos);
            }
        }
    }

    fn initial_text(&mut self, place: Place, room: u32, expr: &crate::ast::Expr) {
        if !matches!(expr.kind, Kind::Text(_)) {
            return self.error(expr.pos, "expected a text in quotes as the initial value");
        }
        self.address(place, expr.pos);
        self.value(expr);
        self.emit(Op::CopyText(room), expr.pos);
        self.emit(Op::Pop, expr.pos);
    }

    /// The variable of a definition. It must live as long as the program.
    fn target(&mut self, target: &Target) -> Option<usize> {
        match self.find(&target.name) {
            Some(Symbol::Var(number)) => Some(number),
            Some(Symbol::Flag(_)) => {
                self.error(target.pos, format!("found the event flag {}, expected a variable", target.name));
                None
            }
            None => {
                self.error(target.pos, format!("found {}, expected a variable that is declared before", target.name));
                None
            }
        }
    }

    fn assign(&mut self, target: &Target, names: &Names) {
        let Some(number) = self.target(target) else { return };
        let VarInfo { ty, place, assigned, .. } = self.vars[number].clone();
        let Place::Data(address) = place else { return };
        let each = |ty: &Ty| match ty {
            Ty::Array(of, count) => Some(((**of).clone(), *count)),
            _ => None,
        };
        match (target.index, names) {
            (None, Names::One(pv)) => {
                if assigned != Assigned::No {
                    return self.error(target.pos, format!("found a second assign of {}", target.name));
                }
                let first = self.channel(&target.name, address, &ty, pv, target.pos);
                self.vars[number].assigned = first.map_or(Assigned::No, Assigned::Whole);
            }
            (None, Names::Each(list)) => match each(&ty) {
                Some((of, count)) => {
                    if assigned != Assigned::No {
                        return self.error(target.pos, format!("found a second assign of {}", target.name));
                    }
                    self.assign_each(number, &of, count, target.pos);
                    if let Assigned::Each(first, count) = self.vars[number].assigned {
                        for (pv, channel) in list.iter().take(count as usize).zip(first as usize..) {
                            self.program.channels[channel].pv.clone_from(pv);
                        }
                    }
                }
                None => self.assign(target, &Names::One(list.first().cloned().unwrap_or_default())),
            },
            (Some(index), names) => {
                let Some((of, count)) = each(&ty).filter(|(_, count)| index < *count) else {
                    return self.error(target.pos, format!("found {}[{index}], which is not an element", target.name));
                };
                match assigned {
                    Assigned::No => self.assign_each(number, &of, count, target.pos),
                    Assigned::Each(..) => {}
                    Assigned::Whole(_) => {
                        let what = format!("found an assign of {0}[{index}] after one of {0} as a whole", target.name);
                        return self.fault(SnlError::new(target.pos, what).remedy("assign the array or its elements"));
                    }
                }
                let pv = match names {
                    Names::One(pv) => pv.clone(),
                    Names::Each(list) => list.first().cloned().unwrap_or_default(),
                };
                if let Assigned::Each(first, _) = self.vars[number].assigned {
                    self.program.channels[(first + index) as usize].pv = pv;
                }
            }
        }
    }

    /// Assigns the elements of an array to a channel each, without process variables.
    fn assign_each(&mut self, number: usize, of: &Ty, count: u32, pos: Pos) {
        let (name, place) = (self.vars[number].name.clone(), self.vars[number].place);
        let Place::Data(address) = place else { return };
        let first = self.program.channels.len() as u32;
        for nth in 0..count {
            let address = address.saturating_add(nth.saturating_mul(self.size(of)));
            if self.channel(&format!("{name}[{nth}]"), address, of, "", pos).is_none() {
                return;
            }
        }
        self.vars[number].assigned = Assigned::Each(first, count);
    }

    fn channel(&mut self, variable: &str, address: u32, ty: &Ty, pv: &str, pos: Pos) -> Option<u32> {
        let (mut of, mut count) = (ty, 1u32);
        while let Ty::Array(inner, more) = of {
            of = inner;
            count = count.saturating_mul(*more);
        }
        let element = match of {
            Ty::Prim(prim) => Element::Prim(*prim),
            Ty::Str => Element::Str,
            _ => {
                self.error(pos, format!("found {variable}, expected a number, a string, or an array of them"));
                return None;
            }
        };
        if self.program.channels.len() >= CHANNELS_MAX {
            self.error(pos, format!("found more than {CHANNELS_MAX} channels"));
            return None;
        }
        self.program.channels.push(ChannelDef {
            variable: variable.to_owned(),
            address,
            element,
            count,
            pv: pv.to_owned(),
            monitored: false,
            flag: 0,
            queue: None,
        });
        Some(self.program.channels.len() as u32 - 1)
    }

    /// The channels of a definition's variable or element.
    fn channels_of(&mut self, target: &Target, what: &str) -> std::ops::Range<usize> {
        let Some(number) = self.target(target) else { return 0..0 };
        let (first, count) = match (self.vars[number].assigned, target.index) {
            (Assigned::Whole(channel), None) => (channel, 1),
            (Assigned::Each(first, count), None) => (first, count),
            (Assigned::Each(first, count), Some(index)) if index < count => (first + index, 1),
            (Assigned::No, _) => {
                let what = format!("found {}, which is {what} but not assigned to a process variable", target.name);
                self.fault(SnlError::new(target.pos, what).remedy("put \"assign NAME to \\\"PV\\\";\" before it"));
                return 0..0;
            }
            _ => {
                self.error(target.pos, format!("found an element of {} that is not assigned separately", target.name));
                return 0..0;
            }
        };
        first as usize..(first + count) as usize
    }

    fn sync(&mut self, target: &Target, flag: &str) {
        let Some(Symbol::Flag(number)) = self.find(flag) else {
            return self.error(target.pos, format!("found {flag}, expected an event flag that is declared before"));
        };
        for channel in self.channels_of(target, "synchronized") {
            self.program.channels[channel].flag = number;
        }
    }

    fn signature(&mut self, function: &Function) {
        let params = function.params.iter().map(|param| param.ty.clone()).collect();
        // The unit is set when the body is compiled.
        self.program.units.push(crate::code::Unit::default());
        let unit = self.program.units.len() as u32 - 1;
        let known = Signature { unit, result: function.result.clone(), params };
        if self.functions.insert(function.name.clone(), known).is_some() {
            self.error(function.pos, format!("found a second function {}", function.name));
        }
    }

    pub(super) fn function_bodies(&mut self, defs: &[Def]) {
        for def in defs {
            let Def::Function(function) = def else { continue };
            let Some(unit) = self.functions.get(&function.name).map(|known| known.unit) else { continue };
            if matches!(function.result, Ty::Struct(_) | Ty::Array(..) | Ty::Str) {
                self.error(function.pos, "found a function with this result, expected a number or a pointer");
            }
            self.context = Context { result: Some(function.result.clone()), ..Context::default() };
            self.scopes.push(std::collections::HashMap::new());
            let compiled = self.unit(|this| {
                for param in &function.params {
                    let offset = this.local(&param.ty, param.pos);
                    let prim = this.prim_of(&param.ty, param.pos);
                    this.unit.params.push((offset, prim));
                    this.vars.push(VarInfo {
                        name: param.name.clone(),
                        ty: param.ty.clone(),
                        place: Place::Local(offset),
                        assigned: Assigned::No,
                    });
                    this.declare(&param.name, Symbol::Var(this.vars.len() - 1), param.pos);
                }
                this.block(&function.body);
                this.finish(function.pos);
            });
            self.scopes.pop();
            self.program.units.swap(unit as usize, compiled as usize);
            self.program.units.pop();
        }
    }
}
