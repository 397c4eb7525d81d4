//! Dry runs of one write as a requester and as the installing ServiceAccount, and the comparison of
//! their results.

use bundle_core::plan::ownership::contested_lists;
use bundle_core::review::Requester;
use bundle_core::rights::{DryRunComparison, DryRunObject, DryRunVerdict, ObjectChanged};
use kube::Client;

use super::{ApplyRejection, PreparedApply, request};
use crate::dry_run::{Detail, RequesterDryRun, verdict_of_read_error};
use crate::reconcile::api::object;
use crate::reconcile::api::whole::ObjectText;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::slots::ApplySlots;

/// A write that is sent as a dry run.
#[derive(Debug, Clone, Copy)]
pub(super) enum DryRunWrite<'w> {
    Apply(&'w PreparedApply<'w>),
    /// A JSON patch of an existing object.
    Patch(&'w PreparedObject, &'w json_patch::Patch),
}

impl<'w> DryRunWrite<'w> {
    pub(super) fn item(self) -> &'w PreparedObject {
        match self {
            Self::Apply(prepared) => prepared.item(),
            Self::Patch(item, _) => item,
        }
    }

    /// Returns true if the write creates the object.
    fn creates(self) -> bool {
        match self {
            Self::Apply(prepared) => prepared.creates(),
            Self::Patch(..) => false,
        }
    }

    /// Sends a dry run as the requester. Returns the resulting object if `detail` requests it.
    pub(super) async fn send_as_requester(
        self,
        run: &RequesterDryRun,
        detail: Detail,
    ) -> Result<Option<ObjectText>, ApplyRejection> {
        let item = self.item();
        let (resource, id) = (&item.kind.resource, &item.id);
        let answer = match self {
            Self::Apply(prepared) => {
                let body = (prepared.body(run.user()).await, !prepared.creates());
                run.apply(resource, id, body, detail).await
            }
            Self::Patch(_, patch) => run.patch(resource, id, patch, detail).await,
        };
        match answer.verdict {
            DryRunVerdict::Allowed => Ok(answer.object),
            verdict if answer.code == 422 && matches!(self, Self::Apply(_)) => {
                let causes = answer.causes.iter();
                let causes = causes.map(|(reason, field)| (reason.as_str(), field.as_str()));
                let lists = contested_lists(id, causes);
                Err(if lists.is_empty() {
                    ApplyRejection::Conflict(verdict)
                } else {
                    ApplyRejection::SharedLists(verdict, lists)
                })
            }
            verdict if answer.code == 409 => Err(ApplyRejection::Conflict(verdict)),
            verdict => Err(ApplyRejection::Verdict(verdict)),
        }
    }

    /// Sends a dry run as the requester. Returns the resulting object.
    async fn object_as_requester(
        self,
        run: &RequesterDryRun,
    ) -> Result<ObjectText, ApplyRejection> {
        let object = self.send_as_requester(run, Detail::Object).await?;
        object.ok_or_else(|| {
            ApplyRejection::Verdict(DryRunVerdict::Unknown(
                "the response contains no object".to_owned(),
            ))
        })
    }

    /// Sends a dry run as the installer, the user of `client`. Returns the resulting object.
    async fn object_as_installer(self, client: &Client) -> Result<ObjectText, ApplyRejection> {
        let answer = match self {
            Self::Apply(prepared) => request::dry_run_object(client, prepared).await,
            Self::Patch(item, patch) => request::dry_run_patch_object(client, item, patch).await,
        };
        let body = match answer {
            Ok(body) => body,
            // This error is a rejection, because a retry does not help until a user grants the
            // missing permission to the installer. All other errors mean an unknown result.
            Err(kube::Error::Api(status))
                if matches!(status.code, 400..=499)
                    && !matches!(status.code, 401 | 404 | 408 | 409 | 429) =>
            {
                return Err(ApplyRejection::Installer(status.message));
            }
            Err(error) => {
                let verdict = DryRunVerdict::Unknown(object::error_message(&error));
                return Err(if object::is_conflict(&error) {
                    ApplyRejection::Conflict(verdict)
                } else {
                    ApplyRejection::Verdict(verdict)
                });
            }
        };
        ObjectText::receive(body)
            .await
            .map_err(|error| ApplyRejection::Verdict(verdict_of_read_error(&error)))
    }
}

/// Compares the dry-run results for requester and installer. If the results differ, a second dry
/// run as the requester finds the fields that get a new value on each request. A second dry run as
/// the installer is sent only if the two results for the requester differ from each other.
pub(super) async fn compare(
    slots: &ApplySlots,
    installer: &Client,
    requester: &Requester,
    run: &RequesterDryRun,
    write: DryRunWrite<'_>,
) -> Result<(), ApplyRejection> {
    let _slot = slots.acquire_comparison(&requester.user).await;
    let mut comparison = first_comparison(installer, run, write).await?;
    if comparison.user_dependent_fields().is_empty() {
        return Ok(());
    }
    let second = write.object_as_requester(run).await?;
    parsed(&[&second], |objects| comparison.add_requester(&objects[0])).await?;
    drop(second);
    if !comparison.user_dependent_fields().is_empty() && comparison.varies_for_requester() {
        let second = write.object_as_installer(installer).await?;
        parsed(&[&second], |objects| comparison.add_installer(&objects[0])).await?;
    }
    let fields = comparison.user_dependent_fields();
    if fields.is_empty() {
        Ok(())
    } else {
        Err(ApplyRejection::MutatedDifferently(fields))
    }
}

/// Sends the first dry run as the requester and the first dry run as the installer, and compares
/// their results. Then drops the results, so that at most two objects are in memory as text.
async fn first_comparison(
    installer: &Client,
    run: &RequesterDryRun,
    write: DryRunWrite<'_>,
) -> Result<DryRunComparison, ApplyRejection> {
    let from_requester = write.object_as_requester(run).await?;
    let from_installer = write.object_as_installer(installer).await?;
    let exists = !write.creates();
    parsed(&[&from_requester, &from_installer], |objects| {
        DryRunComparison::new(exists, &objects[0], &objects[1])
    })
    .await
}

/// Parses all `texts`, and calls `work` with one object for each text. If another user or
/// controller wrote the object between the dry runs, the result of the comparison is unknown.
async fn parsed<T>(
    texts: &[&ObjectText],
    work: impl FnOnce(&[DryRunObject]) -> Result<T, ObjectChanged>,
) -> Result<T, ApplyRejection> {
    let verdict = match ObjectText::with_parsed(texts, work).await {
        Ok(Ok(result)) => return Ok(result),
        Ok(Err(changed)) => DryRunVerdict::Unknown(changed.to_string()),
        Err(error) => verdict_of_read_error(&error),
    };
    Err(ApplyRejection::Verdict(verdict))
}
