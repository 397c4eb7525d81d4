//! Dry runs of one write as a requester and as the installing ServiceAccount, and the comparison of
//! their results.

use bundle_core::plan::ownership::contested_lists;
use bundle_core::review::Requester;
use bundle_core::rights::{DryRunObject, DryRunPair, DryRunVerdict, user_dependent_fields};
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
                let body = (prepared.body(), !prepared.creates());
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
            // This is a rejection, not an unknown result. A user can grant the missing permission
            // to the installer before the write.
            Err(kube::Error::Api(status))
                if matches!(status.code, 400..=499)
                    && !matches!(status.code, 401 | 404 | 408 | 409 | 429) =>
            {
                return Err(ApplyRejection::Installer(status.message));
            }
            Err(error) => {
                let words = object::error_message(&error);
                return Err(ApplyRejection::Verdict(DryRunVerdict::Unknown(words)));
            }
        };
        ObjectText::receive(body)
            .await
            .map_err(|error| ApplyRejection::Verdict(verdict_of_read_error(&error)))
    }
}

/// Compares the dry-run results for requester and installer. If they differ, second dry runs
/// find the fields that the API server sets to new values on each request. The second dry run
/// as the installer is sent only if the results of the requester differ from each other.
pub(super) async fn compare(
    slots: &ApplySlots,
    installer: &Client,
    requester: &Requester,
    run: &RequesterDryRun,
    write: DryRunWrite<'_>,
) -> Result<(), ApplyRejection> {
    let _slot = slots.acquire_comparison(&requester.user).await;
    let exists = !write.creates();
    let from_requester = write.object_as_requester(run).await?;
    let from_installer = write.object_as_installer(installer).await?;
    if differing(exists, &[&from_requester, &from_installer])
        .await?
        .is_empty()
    {
        return Ok(());
    }
    let again = write.object_as_requester(run).await?;
    let mut fields = differing(exists, &[&from_requester, &from_installer, &again]).await?;
    if !fields.is_empty()
        && !differing(exists, &[&from_requester, &again])
            .await?
            .is_empty()
    {
        let installer_again = write.object_as_installer(installer).await?;
        let answers = [&from_requester, &from_installer, &again, &installer_again];
        fields = differing(exists, &answers).await?;
    }
    if fields.is_empty() {
        Ok(())
    } else {
        Err(ApplyRejection::MutatedDifferently(fields))
    }
}

/// Returns the fields that differ between the results for requester and installer. The optional
/// third and fourth results are from second dry runs as the requester and as the installer. If the
/// object `exists`, all results must have the same resourceVersion, because another actor can write
/// the object between the dry runs. Otherwise the result of the comparison is unknown.
async fn differing(exists: bool, answers: &[&ObjectText]) -> Result<Vec<String>, ApplyRejection> {
    let compared = ObjectText::with_parsed(answers, |objects| {
        if exists && !DryRunObject::have_one_version(objects) {
            return None;
        }
        let [requester, installer, again @ ..] = objects else {
            return Some(Vec::new());
        };
        let requester = DryRunPair {
            first: requester,
            again: again.first(),
        };
        let installer = DryRunPair {
            first: installer,
            again: again.get(1),
        };
        Some(user_dependent_fields(requester, installer))
    });
    match compared.await {
        Ok(Some(fields)) => Ok(fields),
        Ok(None) => Err(ApplyRejection::Verdict(DryRunVerdict::Unknown(
            "the object changed during the comparison".to_owned(),
        ))),
        Err(error) => Err(ApplyRejection::Verdict(verdict_of_read_error(&error))),
    }
}
