//! Sums of counts, field by field.

/// Adds two values of a struct by the sums of these fields, which are all that it has.
macro_rules! sums {
    ($type:ident: $($field:ident)+) => {
        impl std::ops::AddAssign for $type {
            fn add_assign(&mut self, other: $type) {
                let $type { $($field),+ } = other;
                $(self.$field += $field;)+
            }
        }

        impl std::ops::Add for $type {
            type Output = $type;

            fn add(mut self, other: $type) -> $type {
                self += other;
                self
            }
        }
    };
}
pub(crate) use sums;
