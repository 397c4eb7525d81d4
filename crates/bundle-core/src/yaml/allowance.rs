//! Number of nodes that may still be parsed: in one document, and in all files of a bundle
//! together.

use std::cell::Cell;

use serde::de::Error;

use super::limits::MAX_NODES;
use super::problem;
use crate::cancellation::Cancellation;
use crate::diagnostic::Finding;

/// Limit for the expansion of aliases in several files together, so that many small files cannot
/// exceed the limit of one large file. The allowance also contains the cancellation of parsing.
#[derive(Debug)]
pub struct Allowance {
    /// Remaining number of nodes.
    pub(super) nodes: usize,
    pub(super) cancellation: Cancellation,
}

impl Default for Allowance {
    fn default() -> Self {
        Self::new(&Cancellation::default())
    }
}

impl Allowance {
    /// Returns the allowance of one bundle. Parsing with this allowance ends at the next node after
    /// `cancellation` is set.
    pub fn new(cancellation: &Cancellation) -> Self {
        Self {
            nodes: MAX_NODES * 4,
            cancellation: cancellation.clone(),
        }
    }

    /// Returns an allowance of `nodes`, for small files. Parsing with this allowance ends at the
    /// next node after `cancellation` is set.
    pub fn of_nodes(nodes: usize, cancellation: &Cancellation) -> Self {
        Self {
            nodes,
            cancellation: cancellation.clone(),
        }
    }

    /// Returns a separate allowance of the same size, to weigh a file before it is parsed.
    pub(super) fn for_weighing(&self) -> Self {
        Self::of_nodes(self.nodes, &self.cancellation)
    }

    /// Returns an error if parsing was cancelled. Callers check at the start of each document,
    /// because a document can consist of a few long nodes.
    pub(super) fn begin_document(&self) -> Result<(), Finding> {
        if self.cancellation.is_cancelled_now() {
            return Err(problem::cancelled());
        }
        Ok(())
    }

    /// Returns an error if the work was cancelled, like [`Self::check`], but also calls the limit of
    /// the cancellation each time. Call this function before a step that can be long.
    pub(crate) fn check_now(&self) -> Result<(), Finding> {
        self.begin_document()
    }

    /// Returns an error if parsing was cancelled.
    pub(crate) fn check(&self) -> Result<(), Finding> {
        if self.cancellation.is_cancelled() {
            return Err(problem::cancelled());
        }
        Ok(())
    }
}

/// Remaining number of nodes for one document. The number decreases while the document is parsed.
pub(super) struct NodeCount<'a> {
    left: Cell<usize>,
    cancellation: &'a Cancellation,
}

impl<'a> NodeCount<'a> {
    pub(super) fn new(allowance: &'a Allowance) -> Self {
        Self {
            left: Cell::new(allowance.nodes),
            cancellation: &allowance.cancellation,
        }
    }

    /// Counts one node before it is parsed. Fails if no nodes remain or if parsing was cancelled.
    pub(super) fn add<E: Error>(&self) -> Result<(), E> {
        if self.cancellation.is_cancelled() {
            return Err(E::custom(problem::CANCELLED));
        }
        let left = self.left.get().checked_sub(1);
        self.left
            .set(left.ok_or_else(|| E::custom(problem::TOO_MANY))?);
        Ok(())
    }

    /// Returns the remaining number of nodes.
    pub(super) fn left(&self) -> usize {
        self.left.get()
    }
}
