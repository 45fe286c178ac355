//! Expansion of the record type list in [`crate::rec`]: modules, type numbers, and a block of memory per type.

/// Declares the record types, each as `module Struct "name in files"`.
///
/// `cargo fmt` does not find the module files declared here. `cargo xtask test fmt` formats them.
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
            /// All types, sorted by name.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Number of the first record that is not a prototype.
            pub(crate) const FIRST_LOADED: RecId = RecId(Self::ALL.len() as u32);

            /// The prototype record of the type.
            pub(crate) const fn first(self) -> RecId {
                RecId(self as u32)
            }

            /// Name in database files.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        /// Field definitions of each type, as `.dbd` text.
        const TEXTS: &[(&str, &str)] = &[$((concat!($name, ".dbd"), include_str!(concat!(stringify!($module), ".dbd"))),)*];

        /// The type-specific parts of the records: one block of memory per type.
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

        /// Evaluates an expression with `T` as the Rust type of a kind. The compiler turns it into a jump to the code of the
        /// type.
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
