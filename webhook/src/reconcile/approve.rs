//! Whether somebody has approved a content digest, where the class asks for that.
//! Not here: who may approve, which admission asks when an approval is written.

use bundle_api::names::reason;
use bundle_core::diagnostic::codes;
use bundle_core::review::Requester;
use bundle_core::review::class::Approval;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams};

use super::room::Room;
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
        match super::stamped(room, &approval, "BundleApproval") {
            Err(why) => turned_down.push(format!("{}: {why}", approval.name_any())),
            Ok(by) if mode == Approval::ByAnotherPerson && by.user == requester.user => turned_down
                .push(format!(
                    "{}: {} asked for the content, and the class wants another person",
                    approval.name_any(),
                    by.user
                )),
            Ok(by) => return Ok(Some(by.user)),
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
