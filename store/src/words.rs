//! Enums whose variants are words: variants, words and the list of all are written once.

/// Declares an enum as a list of its variants with their words. `ALL` has each of them.
macro_rules! words {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$attribute])*
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every value, in the order of the contract.
            pub const ALL: [$name; [$($word),+].len()] = [$($name::$variant),+];

            /// The word of the contract.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }
        }
    };
}
pub(crate) use words;
