//! All record types side by side: one block of memory for each type.

use crate::model::schema::{At, FieldDef, Schema};
use crate::model::slot::{Layout, Slot};
use crate::rec;
use crate::rec::common::Common;
use std::sync::{Arc, OnceLock};

/// Calls a macro with every record type: variant, module (also the name of its block), name in files.
macro_rules! each_type {
    ($macro:ident) => {
        $macro! {
            ASub, a_sub, "aSub";
            Aai, aai, "aai";
            Aao, aao, "aao";
            Ai, ai, "ai";
            Ao, ao, "ao";
            Bi, bi, "bi";
            Bo, bo, "bo";
            Calc, calc, "calc";
            CalcOut, calcout, "calcout";
            Compress, compress, "compress";
            DFanout, dfanout, "dfanout";
            Event, event, "event";
            Fanout, fanout, "fanout";
            Histogram, histogram, "histogram";
            Int64In, int64in, "int64in";
            Int64Out, int64out, "int64out";
            LongIn, longin, "longin";
            LongOut, longout, "longout";
            Lsi, lsi, "lsi";
            Lso, lso, "lso";
            Mbbi, mbbi, "mbbi";
            MbbiDirect, mbbi_direct, "mbbiDirect";
            Mbbo, mbbo, "mbbo";
            MbboDirect, mbbo_direct, "mbboDirect";
            Permissive, permissive, "permissive";
            Printf, printf, "printf";
            Sel, sel, "sel";
            Seq, seq, "seq";
            State, state, "state";
            StringIn, stringin, "stringin";
            StringOut, stringout, "stringout";
            Sub, sub, "sub";
            SubArray, sub_array, "subArray";
            Waveform, waveform, "waveform";
        }
    };
}

macro_rules! types {
    ($($variant:ident, $module:ident, $name:literal;)*) => {
        /// A record type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Kind {
            $($variant,)*
        }

        impl Kind {
            /// All types, in the order of their names.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in files.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        /// What records have of their own, by type.
        #[derive(Default)]
        pub(crate) struct Bodies {
            $(pub(crate) $module: Vec<rec::$module::$variant>,)*
        }

        impl Bodies {
            /// One field of a record's own part.
            pub(crate) fn slot(&mut self, kind: Kind, body: u32, slot: u16) -> Slot<'_> {
                match kind {
                    $(Kind::$variant => self.$module[body as usize].slot(usize::from(slot)),)*
                }
            }

            /// Whether a field of a record's own part rests at its starting value.
            pub(crate) fn rests(&self, kind: Kind, body: u32, slot: u16) -> bool {
                match kind {
                    $(Kind::$variant => self.$module[body as usize].rests(usize::from(slot)),)*
                }
            }

            /// Adds a copy of a type's first record; its number.
            pub(crate) fn push_like_first(&mut self, kind: Kind) -> u32 {
                match kind {
                    $(Kind::$variant => {
                        let body = self.$module.first().cloned().unwrap_or_default();
                        self.$module.push(body);
                        self.$module.len() as u32 - 1
                    })*
                }
            }

            /// Exchanges a record's own part with another database's of the same type.
            pub(crate) fn swap(&mut self, kind: Kind, body: u32, other: &mut Self, at: u32) {
                match kind {
                    $(Kind::$variant => {
                        std::mem::swap(&mut self.$module[body as usize], &mut other.$module[at as usize]);
                    })*
                }
            }

            /// Copies a record's own part from another database.
            pub(crate) fn copy(&mut self, kind: Kind, body: u32, from: &Self, at: u32) {
                match kind {
                    $(Kind::$variant => self.$module[body as usize] = from.$module[at as usize].clone(),)*
                }
            }

            /// Bytes of a record's own part.
            #[cfg(test)]
            pub(crate) const fn size(kind: Kind) -> usize {
                match kind {
                    $(Kind::$variant => size_of::<rec::$module::$variant>(),)*
                }
            }
        }

        /// Notes where each field of a type is stored.
        fn place(name: &str, fields: &mut [FieldDef]) {
            let own: &[&str] = match name {
                $($name => <rec::$module::$variant as Layout>::NAMES,)*
                _ => &[],
            };
            for field in fields {
                let find = |names: &[&str]| names.iter().position(|name| *name == field.name).map(|slot| slot as u16);
                field.at = match (find(Common::NAMES), find(own)) {
                    (Some(slot), _) => At::Common(slot),
                    (None, Some(slot)) => At::Body(slot),
                    (None, None) => At::Nowhere,
                };
            }
        }
    };
}
each_type!(types);
pub(crate) use each_type;

/// The record types, menus and tables of EPICS 7, read once for all databases of the process.
pub(crate) fn builtin() -> Arc<Schema> {
    static BUILTIN: OnceLock<Arc<Schema>> = OnceLock::new();
    let read = || {
        let mut include = |name: &str| (name == "dbCommon.dbd").then(|| include_str!("common.dbd").to_owned());
        let read = Schema::from_dbd(include_str!("base.dbd"), "base.dbd", &mut include);
        // The table is part of this program, and a test reads it.
        let mut schema = read.unwrap_or_else(|error| unreachable!("{error}"));
        for kind in &mut schema.types {
            place(&kind.name, &mut kind.fields);
        }
        Arc::new(schema)
    };
    BUILTIN.get_or_init(read).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ai_record_is_small() {
        // With its name (about 30 bytes and a place in the table) and short texts it stays below 500 bytes.
        let bytes = size_of::<Common>() + Bodies::size(Kind::Ai);
        assert!(bytes <= 500, "{bytes} bytes: {} common, {} of its own", size_of::<Common>(), Bodies::size(Kind::Ai));
    }
}
