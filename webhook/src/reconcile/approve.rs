//! Whether somebody has approved a content digest, where the class asks for that.
//! Not here: who may approve, which admission asks when an approval is written.

use bundle_api::class::ReadyStatus;
use bundle_api::names::{condition, reason};
use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::State;
use bundle_core::review::Requester;
use bundle_core::review::class::Approval;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams};

use super::room::Room;
use super::said::{self, Said};
use super::status;
use super::trouble::{Retry, Trouble};

/// Who approved `digest` for `deployment`; none where the class does not ask.
pub(super) async fn approved(
    room: &Room,
    deployment: &DynamicObject,
    mode: Approval,
    requester: &Requester,
    digest: &str,
) -> Result<Option<String>, Trouble> {
    if mode == Approval::None {
        return Ok(None);
    }
    let api: Api<DynamicObject> = Api::all_with(room.own.clone(), &room.approvals);
    let approvals = api
        .list(&ListParams::default())
        .await
        .map_err(|error| Trouble::api("list BundleApprovals", reason::INSTALL_FAILED, &error))?;
    let name = deployment.name_any();
    let mut turned_down = Vec::new();
    for approval in approvals {
        let spec = &approval.data["spec"];
        let target = &spec["bundleDeployment"];
        if target["name"].as_str() != Some(&name)
            || target["uid"].as_str() != deployment.metadata.uid.as_deref()
            || spec["digest"].as_str() != Some(digest)
            || approval.metadata.deletion_timestamp.is_some()
        {
            continue;
        }
        let by = match super::stamped(room, &approval, "BundleApproval") {
            Err(why) => Err((reason::NOT_ADMITTED, why)),
            Ok(by) if mode == Approval::ByAnotherPerson && by.user == requester.user => Err((
                reason::SELF_APPROVAL,
                format!(
                    "{} asked for the content, and the class wants another person",
                    by.user
                ),
            )),
            Ok(by) => Ok(by),
        };
        tell(room, &approval, &by).await;
        match by {
            Ok(by) => return Ok(Some(by.user)),
            Err((_, why)) => turned_down.push(format!("{}: {why}", approval.name_any())),
        }
    }
    let mut message = format!(
        "waiting for approval of {digest} for BundleDeployment {name} (uid {})",
        deployment.metadata.uid.as_deref().unwrap_or_default()
    );
    if !turned_down.is_empty() {
        turned_down.sort();
        message = format!("{message}; does not count: {}", turned_down.join("; "));
    }
    Err(Trouble::new(
        codes::install::NOT_APPROVED,
        reason::INSTALL_FAILED,
        message,
        Retry::OnChange,
    ))
}

/// Says on an approval whether it counts.
async fn tell(
    room: &Room,
    approval: &DynamicObject,
    by: &Result<Requester, (&'static str, String)>,
) {
    let old: ReadyStatus =
        serde_json::from_value(approval.data["status"].clone()).unwrap_or_default();
    let generation = approval.metadata.generation.unwrap_or_default();
    let mut said = Said::new(&old.conditions, generation, said::now());
    match by {
        Ok(by) => said.set(
            condition::ACCEPTED,
            State::True,
            reason::ACCEPTED,
            &format!("approved by {}", by.user),
        ),
        Err((found, why)) => said.set(condition::ACCEPTED, State::False, found, why),
    }
    let new = ReadyStatus {
        observed_generation: Some(generation),
        conditions: said.into_api(),
    };
    if let Err(error) = status::write(&room.own, &room.approvals, approval, &old, &new).await {
        tracing::warn!(
            approval = approval.name_any(),
            error = crate::chain(&error),
            "the status of an approval could not be written"
        );
    }
}
