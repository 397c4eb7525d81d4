//! Apply requests: the applied form of objects, ignored fields, field owners, and replacement.

pub mod ignore;
pub mod normalize;
pub mod ownership;
pub mod placement;
pub mod replace;
pub mod replacement_trial;
