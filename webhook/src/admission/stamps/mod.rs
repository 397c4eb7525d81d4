//! Admission stamps: their validation and creation, and the time of the write that each stamp
//! belongs to.

pub(super) mod stamping;
pub(super) mod write_time;
