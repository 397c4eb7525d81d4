//! Content on disk that is not stored in the cache yet: fetched, weighed and parsed.

use std::collections::BTreeMap;
use std::io::{self, Write};

use bundle_core::cancellation::Cancellation;
use bundle_core::content::ContentId;
use bundle_core::format::Content;
use bundle_core::plan::bundle::attempts::ParseStep;
use bundle_core::review::Class;
use bundle_oci::unpack::FileSink;

use super::attempt::ContentAttempts;
use super::parse::{self, WeighError};
use super::{panicked, source_error, unstorable};
use crate::budget::{Share, WorkerThread};
use crate::reconcile::content::sealed_file::{FileLocation, SealedFileWriter};
use crate::reconcile::content::stored::{StoredFile, Summary};
use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::sources::{ContentSource as _, OpenSource};

/// Content on disk that is not stored in the cache yet.
pub(in crate::reconcile) struct FetchedContent {
    writer: SealedFileWriter,
    files: BTreeMap<String, FileLocation>,
    pub(in crate::reconcile) summary: Summary,
}

/// A writer with a transfer slot. The thread owns writer and slot until it ends, even if the
/// unpacking was cancelled. Therefore no other transfer gets the slot while the thread still
/// writes.
struct SlotWriter {
    writer: SealedFileWriter,
    slot: Share,
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

/// Fetches `content` to disk, and computes the memory that it needs. Releases the transfer slot at
/// the end.
pub(in crate::reconcile) async fn fetch(
    ctx: &Context,
    source: &OpenSource,
    content: &ContentId,
    slot: Share,
    attempts: &ContentAttempts,
) -> Result<FetchedContent, ReconcileError> {
    let reason = attempts.reason;
    let writer = ctx.store.begin();
    let writer = writer.map_err(|error| unstorable(&error, reason))?;
    let fetched = source.fetch(content, SlotWriter { writer, slot }).await;
    let (files, SlotWriter { mut writer, slot }) =
        fetched.map_err(|error| source_error(error, source.named(), reason))?;
    let alone = attempts.exclusive_memory(ctx).await?;
    let attempt = attempts.attempt(ctx, ParseStep::Weigh);
    let weigh = move |cancellation: &Cancellation| {
        let weigh = || parse::weigh(&files, cancellation, |location| writer.read(location));
        let weighed = attempt.run(weigh);
        (writer, files, weighed, (slot, alone))
    };
    let budget = &ctx.shared.budget;
    let weighed = budget.blocking(WorkerThread::Content, weigh).await;
    let (writer, files, summary, _shares) = weighed.ok_or_else(|| panicked(reason))?;
    let summary = summary?.map_err(|why| match why {
        WeighError::Unreadable(finding) => {
            ReconcileError::findings(reason, &finding.into(), RetryPolicy::OnChange)
        }
        WeighError::Io(error) => unstorable(&error, reason),
    })?;
    Ok(FetchedContent {
        writer,
        files,
        summary,
    })
}

/// Parsed content that is not stored in the cache yet. Its share of memory is released after the
/// content is dropped.
pub(in crate::reconcile) struct ParsedContent {
    pub(in crate::reconcile) content: Content,
    pub(in crate::reconcile) fetched: FetchedContent,
    _memory: Share,
}

impl FetchedContent {
    /// Parses the content, if `class` supports its format.
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
                    self.writer.read(location)
                })
            };
            let read = attempt.run(parse);
            (read, self, memory)
        };
        let budget = &ctx.shared.budget;
        let done = budget.blocking(WorkerThread::Content, work).await;
        let (read, fetched, memory) = done.ok_or_else(|| panicked(reason))?;
        Ok(ParsedContent {
            content: parse::read_error(read?, reason)?,
            fetched,
            _memory: memory,
        })
    }

    /// Stores the content in the cache.
    pub(in crate::reconcile) fn keep(
        self,
        ctx: &Context,
        content: &ContentId,
        owner: &str,
        reason: &'static str,
    ) -> Result<(), ReconcileError> {
        let key = ctx.shared.stamp_key();
        let files = self.files.into_iter();
        let files = files.map(|(path, location)| StoredFile { path, location });
        ctx.store
            .store(
                self.writer,
                files.collect(),
                self.summary,
                content,
                key.bytes(),
                owner,
            )
            .map_err(|error| unstorable(&error, reason))
    }
}
