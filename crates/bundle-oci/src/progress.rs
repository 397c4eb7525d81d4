//! Whom a transfer tells how far it is.
//! Not here: how that is shown (kubectl-bundle).

use std::fmt;

/// An observer of transfers. Everything is optional; it is called often and from several tasks at once.
pub trait Progress: fmt::Debug + Send + Sync {
    /// That many bytes more are going to move.
    fn expect(&self, bytes: u64) {
        let _ = bytes;
    }

    /// That many bytes have moved.
    fn moved(&self, bytes: u64) {
        let _ = bytes;
    }

    /// That many of the expected bytes need not move: they are there.
    fn spared(&self, bytes: u64) {
        let _ = bytes;
    }

    /// That many of the bytes that have moved have to move again.
    fn again(&self, bytes: u64) {
        let _ = bytes;
    }
}

/// Nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {}
