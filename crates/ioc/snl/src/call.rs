//! The functions of the language and of C's library.

use crate::ast::Prim;
use crate::builtin::{ASYNC, CHARACTERS, Fun, MATH, MATH2, STAT_DISCONNECTED, STAT_ERROR, STAT_OK, SYNC};
use crate::format;
use crate::machine::{Action, Machine, Wait};
use crate::memory::{CONSTANTS, Memory, Trap};
use crate::values;
use crate::vm::Flow;
use base::{Alarm, MonoNs, text};
use std::cmp::Ordering;
use std::sync::Arc;

/// Bytes of output that wait to be printed, above which they are a separate action.
const PRINT_MAX: usize = 64 << 10;
/// Maximum number of reads, and of writes with completion, of a channel that are in progress or were given up without an answer.
const REQUESTS_MAX: usize = 1_000;
/// Maximum number of comparisons of `strstr`.
const SEARCH_MAX: usize = 1 << 28;

const fn status(value: i64) -> Flow {
    Flow::Value(value as u64)
}

const fn truth(value: bool) -> Flow {
    Flow::Value(value as u64)
}

impl Machine {
    /// `now` and a number of seconds.
    fn after(&self, seconds: f64) -> MonoNs {
        // The cast is limited; NaN is 0.
        MonoNs(self.now.mono.0.saturating_add((seconds * 1e9) as u64))
    }

    /// Calls a function.
    pub(crate) fn builtin(
        &mut self,
        set: usize,
        stack: &mut [u8],
        fun: Fun,
        args: &[u64],
        floats: u32,
    ) -> Result<Flow, Trap> {
        let arg = |nth: usize| args.get(nth).copied().unwrap_or(0);
        let number = arg(0) as u32;
        let channels = match fun {
            Fun::PvArrayCancel(_) | Fun::PvArrayComplete(_) | Fun::PvArrayConnected | Fun::PvArrayMonitor(_) => arg(1),
            Fun::PvArraySync => arg(1),
            Fun::PvAssignCount | Fun::PvConnectCount => self.channels.len() as u64,
            Fun::PvAssign(_) | Fun::PvMonitor(_) => 10,
            _ => 0,
        };
        self.charge(usize::try_from(channels.saturating_mul(16)).unwrap_or(usize::MAX));
        match fun {
            Fun::Delay => {
                let until = MonoNs(self.sets[set].entered.0.saturating_add((f64::from_bits(arg(0)) * 1e9) as u64));
                if until <= self.now.mono {
                    return Ok(truth(true));
                }
                let wake = self.sets[set].wake.map_or(until, |wake| wake.min(until));
                self.sets[set].wake = Some(wake);
                Ok(truth(false))
            }
            Fun::PvGet => {
                let default = if self.program.has_option('a') { ASYNC } else { SYNC };
                let mode = args.get(1).map_or(default, |mode| *mode as i64);
                Ok(self.pv_get(set, number, mode, self.after(args.get(2).map_or(10.0, |time| f64::from_bits(*time)))))
            }
            Fun::PvPut => {
                let mode = args.get(1).map_or(0, |mode| *mode as i64);
                Ok(self.pv_put(set, number, mode, self.after(args.get(2).map_or(10.0, |time| f64::from_bits(*time)))))
            }
            Fun::PvGetComplete => Ok(truth(self.is_complete(set, number, true))),
            Fun::PvPutComplete => Ok(truth(self.is_complete(set, number, false))),
            Fun::PvGetCancel | Fun::PvPutCancel => {
                self.cancel(set, number, fun == Fun::PvGetCancel);
                Ok(status(0))
            }
            Fun::PvArrayCancel(read) => {
                self.each(number, arg(1))?.for_each(|number| self.cancel(set, number, read));
                Ok(status(0))
            }
            Fun::PvArrayComplete(read) => self.all_complete(set, stack, args, read),
            Fun::PvArrayConnected => {
                let all = self.each(number, arg(1))?.all(|number| self.channels[number as usize].connected);
                Ok(truth(all))
            }
            Fun::PvMonitor(on) => Ok(self.monitor(number, on)),
            Fun::PvArrayMonitor(on) => {
                for number in self.each(number, arg(1))? {
                    self.monitor(number, on);
                }
                Ok(status(STAT_OK))
            }
            Fun::PvSync => {
                self.channels[number as usize].flag = self.flag(arg(1))?;
                Ok(status(0))
            }
            Fun::PvArraySync => {
                let flag = self.flag(arg(2))?;
                self.each(number, arg(1))?.for_each(|number| self.channels[number as usize].flag = flag);
                Ok(status(0))
            }
            Fun::PvGetQ => Ok(truth(self.take_queued(set, number)?)),
            Fun::PvFlushQ => {
                if let Some(queue) = self.program.channels[number as usize].queue {
                    self.queues[queue].clear();
                    self.clear_flag(self.channels[number as usize].flag);
                }
                Ok(status(0))
            }
            Fun::PvAssign(expands) => {
                let at = arg(1);
                let memory = self.memory(set, stack);
                let name = if at == 0 { String::new() } else { base::raw::decode(memory.text(at)?).into_owned() };
                self.charge(name.len());
                let name = if expands { self.expanded(&name) } else { name };
                self.assign(number, &name);
                Ok(status(STAT_OK))
            }
            Fun::PvCount => Ok(Flow::Value(u64::from(self.channels[number as usize].count))),
            Fun::PvStatus => Ok(status(self.channels[number as usize].status)),
            Fun::PvSeverity => Ok(status(self.channels[number as usize].severity)),
            Fun::PvMessage => Ok(self.returned(self.channels[number as usize].message.as_bytes().to_vec())),
            Fun::PvName => Ok(self.returned(self.channels[number as usize].name.clone().into_bytes())),
            Fun::PvTimeStamp => {
                let stamp = self.channels[number as usize].stamp;
                let bytes = [stamp.secs.to_le_bytes(), stamp.nanos.to_le_bytes()].concat();
                Ok(self.returned(bytes))
            }
            Fun::PvAssigned => Ok(truth(!self.channels[number as usize].name.is_empty())),
            Fun::PvConnected => Ok(truth(self.channels[number as usize].connected)),
            Fun::PvIndex => Ok(Flow::Value(u64::from(number))),
            Fun::PvFlush | Fun::Nothing => Ok(status(0)),
            Fun::PvChannelCount => Ok(Flow::Value(self.channels.len() as u64)),
            Fun::PvAssignCount => Ok(Flow::Value(self.counts().0 as u64)),
            Fun::PvConnectCount => Ok(Flow::Value(self.counts().1 as u64)),
            Fun::EfSet => {
                self.set_flag(self.flag(arg(0))?);
                Ok(status(0))
            }
            Fun::EfClear => {
                let flag = self.flag(arg(0))?;
                Ok(truth(self.clear_flag(flag)))
            }
            Fun::EfTest | Fun::EfTestAndClear => {
                let flag = self.flag(arg(0))?;
                self.refresh_synced(set, flag);
                let is_set = self.flags[flag as usize];
                if fun == Fun::EfTestAndClear {
                    self.clear_flag(flag);
                }
                Ok(truth(is_set))
            }
            Fun::MacValueGet => {
                let memory = self.memory(set, stack);
                let name = base::raw::decode(memory.text(arg(0))?).into_owned();
                self.charge(name.len());
                Ok(Flow::Value(self.params.get(&name).map_or(0, |(_, address)| u64::from(*address))))
            }
            Fun::OptGet => {
                let memory = self.memory(set, stack);
                let text = memory.text(arg(0))?;
                let (letter, len) = (text.first().copied().unwrap_or(0), text.len());
                self.charge(len);
                Ok(truth(self.program.has_option(char::from(letter))))
            }
            Fun::Print(skip, line) => {
                let skip = usize::from(skip);
                let rest = args.get(skip + 1..).unwrap_or_default();
                let memory = self.memory(set, stack);
                let mut bytes = match line {
                    true => memory.text(arg(0))?.to_vec(),
                    false => format::print(&memory, arg(skip), rest, floats.unbounded_shr(skip as u32 + 1))?,
                };
                bytes.extend(line.then_some(b'\n'));
                let len = bytes.len();
                match self.actions.last_mut() {
                    Some(Action::Print(before)) if before.len() < PRINT_MAX => before.append(&mut bytes),
                    _ => self.actions.push(Action::Print(bytes)),
                }
                // Printing costs more than an instruction.
                self.share = self.share.saturating_sub(len as u32);
                Ok(status(len as i64))
            }
            Fun::Sleep => {
                self.sets[set].wait = Some(Wait::Sleep(self.after(f64::from_bits(arg(0)))));
                Ok(Flow::Later)
            }
            Fun::Rand => {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                Ok(Flow::Value(self.random >> 33))
            }
            Fun::Srand => {
                self.random = arg(0).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                Ok(status(0))
            }
            Fun::Time => {
                let seconds = self.now.wall.to_unix().0;
                if arg(0) != 0 {
                    self.memory(set, stack).store(Prim::I64, arg(0), seconds)?;
                }
                Ok(Flow::Value(seconds))
            }
            Fun::Now => {
                let stamp = self.now.wall;
                let mut memory = self.memory(set, stack);
                memory.store(Prim::U32, arg(0), u64::from(stamp.secs))?;
                memory.store(Prim::U32, arg(0).wrapping_add(4), u64::from(stamp.nanos))?;
                Ok(status(0))
            }
            Fun::Seconds => {
                let seconds = self.now.wall.as_nanos() as f64 / 1e9;
                self.memory(set, stack).store(Prim::F64, arg(0), seconds.to_bits())?;
                Ok(status(STAT_OK))
            }
            fun => {
                let (word, cost) = library(&mut self.memory(set, stack), fun, args, floats)?;
                self.share = self.share.saturating_sub(cost);
                Ok(Flow::Value(word))
            }
        }
    }

    fn memory<'a>(&'a mut self, set: usize, stack: &'a mut [u8]) -> Memory<'a> {
        let view = self.view(set);
        Memory { constants: &self.constants, data: &mut self.views[view], stack }
    }

    /// Address of bytes that a function returns. They stay until the next such call.
    fn returned(&mut self, mut bytes: Vec<u8>) -> Flow {
        bytes.truncate(255);
        bytes.push(0);
        let from = (self.scratch - CONSTANTS) as usize;
        self.constants[from..from + bytes.len()].copy_from_slice(&bytes);
        Flow::Value(u64::from(self.scratch))
    }

    fn flag(&self, word: u64) -> Result<u32, Trap> {
        let flag = usize::try_from(word).ok().filter(|flag| *flag < self.flags.len());
        flag.map(|flag| flag as u32).ok_or(Trap::Argument("found a number that is not an event flag"))
    }

    /// The first `count` channels of an array.
    fn each(&self, first: u32, count: u64) -> Result<std::ops::Range<u32>, Trap> {
        let end = u64::from(first).saturating_add(count);
        match u32::try_from(end).ok().filter(|end| *end as usize <= self.channels.len()) {
            Some(end) => Ok(first..end),
            None => Err(Trap::Argument("found a number of channels that is larger than the array")),
        }
    }

    /// Whether a channel has no process variable but connects state sets, in safe mode.
    fn is_anonymous(&self, number: u32) -> bool {
        self.is_safe && self.channels[number as usize].name.is_empty()
    }

    fn pv_get(&mut self, set: usize, number: u32, mode: i64, until: MonoNs) -> Flow {
        if self.is_anonymous(number) {
            match mode {
                ASYNC => drop(self.sets[set].dirty.insert(number)),
                _ => self.refresh(set, number),
            }
            return status(STAT_OK);
        }
        let pending = self.sets[set].reads.contains(&number);
        match self.before(set, number, pending.then_some(true), mode, until) {
            Some(flow) => flow,
            None if self.channels[number as usize].readers.len() >= REQUESTS_MAX => self.unanswered(number),
            None => {
                self.channels[number as usize].readers.push_back(Some(set));
                self.actions.push(Action::Read(number));
                if mode == ASYNC {
                    self.sets[set].reads.insert(number);
                    return status(STAT_OK);
                }
                self.sets[set].wait = Some(Wait::Read(number, until));
                Flow::Later
            }
        }
    }

    fn pv_put(&mut self, set: usize, number: u32, mode: i64, until: MonoNs) -> Flow {
        let program = Arc::clone(&self.program);
        let def = &program.channels[number as usize];
        let range = values::range(def);
        self.charge(range.len());
        let bytes = self.views[self.view(set)][range.clone()].to_vec();
        if self.is_anonymous(number) {
            let (shared, stamp) = (self.shared(), self.now.wall);
            self.views[shared][range].copy_from_slice(&bytes);
            self.channels[number as usize].stamp = stamp;
            if self.channels[number as usize].monitored {
                let value = values::load(def, &bytes, def.count);
                self.monitored(number, value, Alarm::NONE, stamp);
            } else {
                self.set_flag(self.channels[number as usize].flag);
            }
            return status(STAT_OK);
        }
        let pending = self.sets[set].writes.contains(&number) && matches!(mode, SYNC | ASYNC);
        if let Some(flow) = self.before(set, number, pending.then_some(false), mode, until) {
            return flow;
        }
        let completion = matches!(mode, SYNC | ASYNC);
        if completion && self.channels[number as usize].writers.len() >= REQUESTS_MAX {
            return self.unanswered(number);
        }
        if self.is_safe {
            let shared = self.shared();
            self.views[shared][range].copy_from_slice(&bytes);
        }
        let count = self.channels[number as usize].count;
        let value = values::load(def, &bytes, count);
        self.actions.push(Action::Write(number, value, completion));
        if completion {
            self.channels[number as usize].writers.push_back(Some(set));
        }
        match mode {
            SYNC => {
                self.sets[set].wait = Some(Wait::Write(number, until));
                Flow::Later
            }
            ASYNC => {
                self.sets[set].writes.insert(number);
                status(STAT_OK)
            }
            _ => status(STAT_OK),
        }
    }

    /// Reasons not to start a read or write now: no connection, or one that is pending (`Some`, whether it is a read).
    fn before(&mut self, set: usize, number: u32, pending: Option<bool>, mode: i64, until: MonoNs) -> Option<Flow> {
        let channel = &mut self.channels[number as usize];
        if !channel.connected {
            (channel.status, channel.message) = match channel.name.is_empty() {
                true => (STAT_ERROR, "not assigned"),
                false => (STAT_DISCONNECTED, "not connected"),
            };
            return Some(status(channel.status));
        }
        let read = pending?;
        if mode == ASYNC {
            if std::mem::replace(&mut channel.is_reported, true) {
                return Some(status(STAT_ERROR));
            }
            let (variable, name) = (&self.program.channels[number as usize].variable, &channel.name);
            let what = if read { "pvGet" } else { "pvPut" };
            let text =
                format!("{what}({variable}, ASYNC) to {name}: found one that is pending, expected its completion");
            self.log(text);
            return Some(status(STAT_ERROR));
        }
        self.sets[set].wait = Some(Wait::Pending(read, number, until));
        Some(Flow::Retry)
    }

    /// Result of a request that is not made, because too many earlier ones have no answer.
    fn unanswered(&mut self, number: u32) -> Flow {
        let channel = &mut self.channels[number as usize];
        (channel.status, channel.message) = (STAT_ERROR, "too many requests without an answer");
        status(STAT_ERROR)
    }

    fn is_complete(&mut self, set: usize, number: u32, read: bool) -> bool {
        let state = &self.sets[set];
        let complete = !if read { &state.reads } else { &state.writes }.contains(&number);
        if complete && read {
            self.refresh(set, number);
        }
        complete
    }

    fn all_complete(&mut self, set: usize, stack: &mut [u8], args: &[u64], read: bool) -> Result<Flow, Trap> {
        let each: Vec<bool> = self
            .each(args.first().copied().unwrap_or(0) as u32, args.get(1).copied().unwrap_or(0))?
            .map(|number| self.is_complete(set, number, read))
            .collect();
        let results = args.get(3).copied().unwrap_or(0);
        if results != 0 {
            let mut memory = self.memory(set, stack);
            for (nth, complete) in each.iter().enumerate() {
                memory.store(Prim::I32, results.wrapping_add(4 * nth as u64), u64::from(*complete))?;
            }
        }
        let any = args.get(2).is_some_and(|any| *any != 0);
        Ok(truth(if any { each.contains(&true) } else { !each.contains(&false) }))
    }

    pub(crate) fn cancel(&mut self, set: usize, number: u32, read: bool) {
        let (state, channel) = (&mut self.sets[set], &mut self.channels[number as usize]);
        if read { &mut state.reads } else { &mut state.writes }.remove(&number);
        let queue = if read { &mut channel.readers } else { &mut channel.writers };
        queue.iter_mut().filter(|waits| **waits == Some(set)).for_each(|waits| *waits = None);
    }

    fn monitor(&mut self, number: u32, on: bool) -> Flow {
        let channel = &mut self.channels[number as usize];
        if channel.name.is_empty() && !self.is_safe {
            return status(STAT_ERROR);
        }
        if channel.monitored != on && !channel.name.is_empty() {
            self.actions.push(Action::Monitor(number, on));
        }
        (channel.monitored, channel.has_monitor) = (on, on && channel.has_monitor);
        status(STAT_OK)
    }

    /// Takes the oldest value of a queue.
    fn take_queued(&mut self, set: usize, number: u32) -> Result<bool, Trap> {
        let Some(queue) = self.program.channels[number as usize].queue else {
            return Err(Trap::Argument("found pvGetQ of a variable without syncq"));
        };
        let Some((value, alarm, stamp)) = self.queues[queue].pop_front() else { return Ok(false) };
        self.store(number, &value, alarm, stamp);
        self.refresh(set, number);
        if self.queues[queue].is_empty() {
            self.clear_flag(self.channels[number as usize].flag);
        }
        Ok(true)
    }
}

/// Functions of C's library. Returns the result and its cost in instructions.
fn library(memory: &mut Memory<'_>, fun: Fun, args: &[u64], floats: u32) -> Result<(u64, u32), Trap> {
    let arg = |nth: usize| args.get(nth).copied().unwrap_or(0);
    let real = |nth: usize| f64::from_bits(arg(nth));
    let limit =
        |nth: usize, limited: bool| if limited { usize::try_from(arg(nth)).unwrap_or(usize::MAX) } else { usize::MAX };
    let (word, cost) = match fun {
        Fun::Sprintf => {
            let text = format::print(memory, arg(1), args.get(2..).unwrap_or_default(), floats >> 2)?;
            memory.set_text(arg(0), &text)?;
            (text.len() as u64, text.len())
        }
        Fun::Snprintf => {
            let text = format::print(memory, arg(2), args.get(3..).unwrap_or_default(), floats >> 3)?;
            if let Some(room) = limit(1, true).checked_sub(1) {
                memory.set_text(arg(0), &text[..text.len().min(room)])?;
            }
            (text.len() as u64, text.len())
        }
        Fun::Sscanf => {
            let len = memory.text(arg(0))?.len() + memory.text(arg(1))?.len();
            (format::scan(memory, arg(0), arg(1), args.get(2..).unwrap_or_default())? as u64, len)
        }
        Fun::Copy(append, limited) => {
            let text = memory.text(arg(1))?;
            let len = text.len().min(limit(2, limited));
            let text = text[..len].to_vec();
            if append {
                let end = arg(0) + memory.text(arg(0))?.len() as u64;
                memory.set_text(end, &text)?;
            } else if limited {
                let room = memory.bytes_mut(arg(0), limit(2, true))?;
                room.fill(0);
                room[..len].copy_from_slice(&text);
            } else {
                memory.set_text(arg(0), &text)?;
            }
            (arg(0), if limited && !append { limit(2, true) } else { len })
        }
        Fun::Compare(exact, limited) => {
            let part = |nth: usize| -> Result<Vec<u8>, Trap> {
                let rest = memory.rest(arg(nth))?;
                let most = rest.len().min(limit(2, limited));
                let len = rest[..most].iter().position(|byte| *byte == 0).unwrap_or(most);
                Ok(if exact { rest[..len].to_vec() } else { rest[..len].to_ascii_lowercase() })
            };
            let (left, right) = (part(0)?, part(1)?);
            let order = match left.cmp(&right) {
                Ordering::Less => -1i64,
                Ordering::Equal => 0,
                Ordering::Greater => 1,
            };
            (order as u64, left.len() + right.len())
        }
        Fun::Strlen => {
            let len = memory.text(arg(0))?.len();
            (len as u64, len)
        }
        Fun::Strchr(last) => {
            let text = memory.text(arg(0))?;
            let is = |byte: &u8| *byte == arg(1) as u8;
            let found = match last {
                _ if arg(1) as u8 == 0 => Some(text.len()),
                true => text.iter().rposition(is),
                false => text.iter().position(is),
            };
            (found.map_or(0, |at| arg(0) + at as u64), text.len())
        }
        Fun::Strstr => {
            let (text, part) = (memory.text(arg(0))?, memory.text(arg(1))?);
            if text.len().saturating_mul(part.len()) > SEARCH_MAX {
                return Err(Trap::Argument("found texts that are too long for strstr, expected shorter ones"));
            }
            let found = if part.is_empty() { Some(0) } else { text.windows(part.len()).position(|at| at == part) };
            (found.map_or(0, |at| arg(0) + at as u64), text.len().saturating_mul(part.len().max(1)))
        }
        Fun::Atoi => {
            let text = memory.text(arg(0))?;
            (format::parse_whole(text, 10).map_or(0, |(value, _)| value) as u64, text.len())
        }
        Fun::Atof => {
            let text = memory.text(arg(0))?;
            (text::parse_double(text).map_or(0.0, |(value, _)| value).to_bits(), text.len())
        }
        Fun::Strtol | Fun::Strtod => {
            let text = memory.text(arg(0))?;
            let cost = text.len();
            let (word, len) = match fun {
                Fun::Strtol => {
                    format::parse_whole(text, arg(2) as u32).map_or((0, 0), |(value, len)| (value as u64, len))
                }
                _ => text::parse_double(text).map_or((0, 0), |(value, len)| (value.to_bits(), len)),
            };
            if arg(1) != 0 {
                memory.store(Prim::U64, arg(1), arg(0) + len as u64)?;
            }
            (word, cost)
        }
        Fun::Character(nth) => ((CHARACTERS[usize::from(nth)].1)(arg(0) as u8) as u64, 0),
        Fun::Abs => ((arg(0) as i64).wrapping_abs() as u64, 0),
        Fun::Math(nth) => ((MATH[usize::from(nth)].1)(real(0)).to_bits(), 0),
        Fun::Math2(nth) => ((MATH2[usize::from(nth)].1)(real(0), real(1)).to_bits(), 0),
        Fun::Memset => {
            memory.bytes_mut(arg(0), limit(2, true))?.fill(arg(1) as u8);
            (arg(0), limit(2, true))
        }
        Fun::Memcpy => {
            let bytes = memory.bytes(arg(1), limit(2, true))?.to_vec();
            memory.bytes_mut(arg(0), bytes.len())?.copy_from_slice(&bytes);
            (arg(0), bytes.len())
        }
        Fun::TimeDiff => {
            let seconds = |at: u64| -> Result<f64, Trap> {
                let (whole, nanos) = (memory.load(Prim::U32, at)?, memory.load(Prim::U32, at.wrapping_add(4))?);
                Ok(whole as f64 + nanos as f64 * 1e-9)
            };
            ((seconds(arg(0))? - seconds(arg(1))?).to_bits(), 0)
        }
        _ => (0, 0),
    };
    Ok((word, cost_of(cost)))
}

/// Work on bytes, as a number of instructions.
fn cost_of(bytes: usize) -> u32 {
    u32::try_from(bytes / 16).unwrap_or(u32::MAX)
}
