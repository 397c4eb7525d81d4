//! Authorization of content and of single writes: decisions of classes, consent, targets and
//! downgrades.

pub mod consent;
pub mod decision;
pub mod downgrade;
pub mod targets;
