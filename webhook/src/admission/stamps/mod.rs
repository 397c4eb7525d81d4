//! Admission stamps: their validation and creation, and the time of the write that a stamp belongs
//! to.

pub(super) mod stamping;
pub(super) mod write_time;
