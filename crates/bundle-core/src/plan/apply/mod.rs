//! Apply requests: the applied form of objects, ignored fields, field owners, replacement, and
//! applies that would change nothing.

pub mod ignore;
pub mod normalize;
pub mod ownership;
pub mod placement;
pub mod replace;
pub mod replacement_trial;
pub mod unchanged;
