//! Fetches, weighs and parses content on disk before it is stored in the cache.

use std::collections::BTreeMap;
use std::io::{self, Write};

use bundle_core::cancellation::Cancellation;
use bundle_core::content::ContentId;
use bundle_core::format::Content;
use bundle_core::plan::bundle::attempts::ParseStep;
use bundle_core::review::Class;
use bundle_oci::unpack::FileSink;

use super::attempt::ContentAttempts;
use super::errors::content_over_limit;
use super::parse::{self, WeighError, content_error};
use super::{panicked, source_error, unstorable};
use crate::blocking;
use crate::budget::{Share, TransferSlot, WorkerThread};
use crate::reconcile::content::sealed_file::{FileLocation, SealedFileWriter};
use crate::reconcile::content::stored::{StoredFile, Summary};
use crate::reconcile::context::Context;
use crate::reconcile::error::ReconcileError;
use crate::sources::{ContentSource as _, OpenSource};

/// Content on disk that is not stored in the cache yet. The value keeps its transfer slot until the
/// content is stored or dropped, even while the content waits for memory.
pub(in crate::reconcile) struct FetchedContent {
    file: SlotWriter,
    files: BTreeMap<String, FileLocation>,
    pub(in crate::reconcile) summary: Summary,
}

/// A file writer with its transfer slot. The worker thread owns both until it ends, even if the
/// task was cancelled. Therefore no other transfer gets the slot while the thread still writes.
struct SlotWriter {
    writer: SealedFileWriter,
    /// This field is dropped after `writer`, and dropping `writer` removes the unfinished file.
    /// Therefore the number of unfinished files never exceeds the number of slots.
    slot: TransferSlot,
}

impl Write for SlotWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl FileSink for SlotWriter {
    type File = FileLocation;

    fn end_file(&mut self) -> io::Result<FileLocation> {
        self.writer.end_file()
    }
}

/// Fetches `content` to disk, and computes the memory that parsing needs. At the end, marks the
/// transfer of `slot` as ended. The returned content keeps the slot.
///
/// The source is dropped after the transfer, because its memory is in the same pool as the memory
/// that parsing needs.
pub(in crate::reconcile) async fn fetch(
    ctx: &Context,
    source: OpenSource,
    content: &ContentId,
    slot: TransferSlot,
    attempts: &ContentAttempts,
) -> Result<FetchedContent, ReconcileError> {
    let reason = attempts.reason;
    let writer = ctx.store.begin();
    let writer = writer.map_err(|error| unstorable(&error, reason))?;
    let fetched = source.fetch(content, SlotWriter { writer, slot }).await;
    let (files, mut file) = fetched.map_err(|error| source_error(error, source.named(), reason))?;
    drop(source);
    let alone = attempts.exclusive_memory(ctx).await?;
    let attempt = attempts.attempt(ctx, ParseStep::Weigh);
    let limit = ctx.shared.budget.largest_content();
    let weigh = move |cancellation: &Cancellation| {
        let mut read = |location: &FileLocation| file.writer.read(location);
        let weigh = || parse::weigh(&files, limit, cancellation, &mut read);
        let weighed = attempt.run(weigh);
        (file, files, weighed, alone)
    };
    let budget = &ctx.shared.budget;
    let weighed = budget
        .blocking(WorkerThread::Content, attempts.key(), weigh)
        .await;
    let (file, files, summary, _alone) = weighed.ok_or_else(|| panicked(reason))?;
    let summary = summary?.map_err(|why| match why {
        WeighError::Unreadable(finding) => content_error(&finding.into(), reason),
        WeighError::TooLarge(weight) => content_over_limit(weight, limit, reason),
        WeighError::Io(error) => unstorable(&error, reason),
    })?;
    Ok(FetchedContent::new(file, files, summary))
}

/// Parsed content that is not stored in the cache yet. Its memory reservation is released after the
/// content is dropped.
pub(in crate::reconcile) struct ParsedContent {
    pub(in crate::reconcile) content: Content,
    pub(in crate::reconcile) fetched: FetchedContent,
    _memory: Share,
}

impl FetchedContent {
    /// Creates the fetched content, and marks its transfer as ended. The content keeps the slot.
    fn new(mut file: SlotWriter, files: BTreeMap<String, FileLocation>, summary: Summary) -> Self {
        file.slot.end_transfer();
        Self {
            file,
            files,
            summary,
        }
    }

    /// Parses the content. Fails if `class` does not support its format.
    pub(in crate::reconcile) async fn parse(
        mut self,
        ctx: &Context,
        class: &Class,
        attempts: &ContentAttempts,
    ) -> Result<ParsedContent, ReconcileError> {
        let reason = attempts.reason;
        let memory = attempts.memory(ctx, self.summary.weight).await?;
        let class = class.clone();
        let attempt = attempts.attempt(ctx, ParseStep::Parse);
        let work = move |cancellation: &Cancellation| {
            let files = self
                .files
                .iter()
                .map(|(path, location)| (path.clone(), *location));
            let files: Vec<_> = files.collect();
            let check = |found, is_declared| class.format(found, is_declared);
            let parse = || {
                parse::parse(files, check, cancellation, |location| {
                    self.file.writer.read(location)
                })
            };
            let read = attempt.run(parse);
            (read, self, memory)
        };
        let budget = &ctx.shared.budget;
        let done = budget
            .blocking(WorkerThread::Content, attempts.key(), work)
            .await;
        let (read, fetched, memory) = done.ok_or_else(|| panicked(reason))?;
        Ok(ParsedContent {
            content: parse::read_error(read?, reason)?,
            fetched,
            _memory: memory,
        })
    }

    /// Stores the content in the cache, and then releases the transfer slot.
    pub(in crate::reconcile) fn keep(
        self,
        ctx: &Context,
        content: &ContentId,
        owner: &str,
        reason: &'static str,
    ) -> Result<(), ReconcileError> {
        let key = ctx.shared.stamp_key();
        // `_slot` is dropped at the end of the function, after the file was renamed or removed.
        let SlotWriter {
            writer,
            slot: _slot,
        } = self.file;
        let files = self.files.into_iter();
        let files = files.map(|(path, location)| StoredFile { path, location });
        let (files, summary) = (files.collect(), self.summary);
        let store = || {
            ctx.store
                .store(writer, files, summary, content, key.bytes(), owner)
        };
        // If the cache is full, the store reads the sizes and times of all cached files.
        blocking::run(store).map_err(|error| unstorable(&error, reason))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures::FutureExt as _;

    use super::*;
    use crate::budget::Budget;
    use crate::reconcile::content::store::Store;
    use crate::telemetry::metrics::CacheMetrics;

    const REGISTRY: &str = "registry.example.com";

    /// Creates an unfinished file for content of `requester`. Returns `None` if no transfer slot is
    /// free for the requester.
    fn begin(budget: &Budget, store: &Store, requester: &str) -> Option<SlotWriter> {
        let slot = budget.transfers.take(requester, REGISTRY);
        let slot = slot.now_or_never()?.unwrap();
        let writer = store.begin().unwrap();
        Some(SlotWriter { writer, slot })
    }

    /// Returns content of `requester` that waits for memory. Returns `None` if no transfer slot is
    /// free for the requester.
    fn fetched(budget: &Budget, store: &Store, requester: &str) -> Option<FetchedContent> {
        let summary = Summary {
            bytes: 0,
            weight: 0,
        };
        let file = begin(budget, store, requester)?;
        Some(FetchedContent::new(file, BTreeMap::new(), summary))
    }

    fn unfinished_files(folder: &Path) -> usize {
        fs_err::read_dir(folder).unwrap().count()
    }

    #[tokio::test]
    async fn contents_of_one_requester_that_wait_for_memory_are_limited_and_others_are_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned(), 1 << 20, CacheMetrics::default());
        let budget = Budget::default();
        let mut of_ana: Vec<_> = (0..8)
            .map_while(|_| fetched(&budget, &store, "ana"))
            .collect();
        assert_eq!((of_ana.len(), unfinished_files(folder.path())), (2, 2));
        let mut waiting = Box::pin(budget.transfers.take("ana", REGISTRY));
        assert!(waiting.as_mut().now_or_never().is_none());
        let of_ben = begin(&budget, &store, "ben");
        assert!(of_ben.is_some());
        assert_eq!(unfinished_files(folder.path()), 3);
        // Dropping one of the contents removes its file and releases its slot.
        of_ana.pop();
        assert_eq!(unfinished_files(folder.path()), 2);
        assert!(waiting.now_or_never().is_some());
    }

    #[tokio::test]
    async fn contents_of_any_number_of_requesters_have_a_limited_number_of_files() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned(), 1 << 20, CacheMetrics::default());
        let budget = Budget::default();
        let held: Vec<_> = (0..100)
            .map(|number| fetched(&budget, &store, &format!("tenant-{}", number % 20)))
            .collect();
        // docs/reference/limits.md uses this number of files to compute the size of the cache
        // volume.
        assert_eq!(unfinished_files(folder.path()), 6);
        drop(held);
        assert_eq!(unfinished_files(folder.path()), 0);
    }
}
