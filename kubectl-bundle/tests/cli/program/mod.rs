//! Verbs about this program itself.

mod completion;
