//! What the line of a record type in [`crate::rec`] makes: its module, its place among all types, and its block of memory.

/// Declares the record types, each `module Struct "name in files"`.
///
/// Files that only this names are hidden from `cargo fmt`; `cargo xtask test fmt` knows them.
macro_rules! record_types {
    (($d:tt) $($module:ident $variant:ident $name:literal;)*) => {
        $(pub(crate) mod $module;)*

        /// A record type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Kind {
            $($variant,)*
        }

        impl Kind {
            /// All types, in the order of their names.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The first record that is not one of those from which others are copied.
            pub(crate) const FIRST_LOADED: RecId = RecId(Self::ALL.len() as u32);

            /// The record that those of the type are copied from.
            pub(crate) const fn first(self) -> RecId {
                RecId(self as u32)
            }

            /// The name in files.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        /// The fields of each type, as `.dbd` text.
        const TEXTS: &[(&str, &str)] = &[$((concat!($name, ".dbd"), include_str!(concat!(stringify!($module), ".dbd"))),)*];

        /// What records have of their own: one block of memory for each type.
        #[derive(Default)]
        pub(crate) struct Bodies {
            $($module: Vec<$module::$variant>,)*
        }

        $(impl Stored for $module::$variant {
            #[inline]
            fn block(bodies: &Bodies) -> &Vec<Self> {
                &bodies.$module
            }
            #[inline]
            fn block_mut(bodies: &mut Bodies) -> &mut Vec<Self> {
                &mut bodies.$module
            }
        })*

        /// Evaluates an expression with `T` as the type that a kind is: what the compiler makes of it is a jump to the
        /// type's own code.
        macro_rules! of_type {
            ($d kind:expr, $d T:ident => $d what:expr) => {
                match $d kind {
                    $(Kind::$variant => {
                        type $d T = $module::$variant;
                        $d what
                    })*
                }
            };
        }
    };
}
pub(crate) use record_types;
