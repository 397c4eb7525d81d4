//! Tests of changes of field ownership before an apply: the requests, their users, and the results
//! after rejections.

use bundle_core::plan::consent::{ActingAccount, ConsentRule, ObjectAction};
use bundle_core::plan::decision::DecidedObjects;

use super::*;

/// Returns the rule that every object must pass dry runs as the requesters.
pub(super) fn by_dry_run() -> RequiredConsent {
    RequiredConsent {
        rule: ConsentRule::new(None, ActingAccount::Granted, DecidedObjects::None),
        action: ObjectAction::Install,
    }
}

/// Returns an object whose `fields` belong to `manager`.
pub(super) fn updated_by(manager: &str, fields: &Value) -> Value {
    let mut object = live("theirs", "5", "theirs");
    object["metadata"]["managedFields"] = json!([{
        "manager": manager, "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    }]);
    object
}

/// Checks and applies an object in the same way as an installation. Objects without an owner are
/// adopted. Returns the result and all requests.
async fn adopted(answers: Vec<(u16, Value)>) -> (Result<Applied, ApplyError>, Vec<SentRequest>) {
    let (client, sent) = scripted(answers);
    let memory = AllowedDryRuns::default();
    let mut applies = checking(&client, &memory, (false, false));
    applies.preparer.adopt = true;
    let item = PreparedObject::config_map();
    let target = Target::Uid("theirs".to_owned());
    let prepared = in_version(applies.preparer.prepare(&item, target).await.unwrap());
    let result = match applies.check(prepared, true, Instant::now()).await {
        Ok(checked) => applies.apply(&client, checked).await.result,
        Err((_, refusal)) => Err(ApplyError::NotAllowed(refusal)),
    };
    drop((applies, client));
    (result, sent.await.unwrap())
}

pub(super) fn users(sent: &[SentRequest]) -> Vec<&str> {
    sent.iter().map(|sent| sent.user.as_str()).collect()
}

/// Asserts that the last five requests are the patch of `managedFields` and the apply, each
/// preceded by its dry run, and a read of the version before the dry run of the apply.
fn assert_taken_and_applied(sent: &[SentRequest], expected: &Value) {
    let [patch_as_requester, patch, read, dry_run, apply] = &sent[sent.len() - 5..] else {
        panic!("{sent:?}");
    };
    assert!(patch_as_requester.is_dry_run() && !patch.is_dry_run());
    assert_eq!(patch_as_requester.body, patch.body);
    assert_eq!(patch.body[0]["value"], "theirs");
    assert_eq!(patch.body[1]["value"][0]["fieldsV1"], *expected);
    assert_eq!(patch.body[2]["path"], "/metadata/resourceVersion");
    assert_eq!(patch.body[2]["value"], "5");
    assert_eq!(read.method, Method::GET);
    assert!(dry_run.is_dry_run() && !apply.is_dry_run());
    assert_eq!(dry_run.body, apply.body);
}

#[tokio::test]
async fn adopted_object_is_checked_again_after_its_fields_changed_their_manager() {
    let fields = json!({"f:data": {"f:a": {}, "f:b": {}}});
    let helm = updated_by("helm", &fields);
    let (result, sent) = adopted(vec![
        (200, json!({})),
        (200, helm.clone()),
        (200, json!({})),
        (200, helm.clone()),
        (200, helm.clone()),
        (200, json!({})),
        (200, live("theirs", "7", "content")),
    ])
    .await;
    result.unwrap();
    let expected = [
        "ana",
        "installer",
        "ana",
        "installer",
        "installer",
        "ana",
        "installer",
    ];
    assert_eq!(users(&sent), expected);
    assert_taken_and_applied(&sent, &fields);

    // If the API server denies the dry run of the patch as the requester, no further request is
    // sent.
    let refused = failure(403);
    let answers = vec![(200, json!({})), (200, helm.clone()), refused.clone()];
    let (result, sent) = adopted(answers).await;
    assert!(matches!(result, Err(ApplyError::NotAllowed(_))));
    assert_eq!(users(&sent), ["ana", "installer", "ana"]);
    let (result, sent) = adopted(vec![
        (200, json!({})),
        (200, helm.clone()),
        (200, json!({})),
        (200, helm.clone()),
        (200, helm),
        refused,
    ])
    .await;
    assert!(matches!(result, Err(ApplyError::NotAllowed(_))));
    assert_eq!(sent.len(), 6);

    // The ownership of fields of an unknown manager is not changed.
    let (result, sent) = adopted(vec![
        (200, json!({})),
        (200, updated_by("kubectl-edit", &fields)),
        (200, live("theirs", "7", "content")),
    ])
    .await;
    result.unwrap();
    assert_eq!(users(&sent), ["ana", "installer", "installer"]);
}

#[tokio::test]
async fn contested_list_changes_its_manager_before_the_second_check() {
    let fields = json!({"f:spec": {"f:ports": {"k:{}": {}}}});
    let edited = updated_by("kubectl-edit", &fields);
    let mut invalid = failure(422);
    invalid.1["details"] =
        json!({"causes": [{"reason": "FieldValueDuplicate", "field": "spec.ports[1].name"}]});
    let (result, sent) = adopted(vec![
        invalid,
        (200, edited.clone()),
        (200, json!({})),
        (200, edited.clone()),
        (200, edited.clone()),
        (200, json!({})),
        // No other manager owns items of the list.
        (200, updated_by("kubectl-edit", &json!({}))),
        (200, live("theirs", "7", "content")),
    ])
    .await;
    result.unwrap();
    let expected = [
        "ana",
        "installer",
        "ana",
        "installer",
        "installer",
        "ana",
        "installer",
        "installer",
    ];
    assert_eq!(users(&sent), expected);
    assert_eq!(sent[3].body[1]["value"][0]["manager"], "bundle-webhook");
    assert_eq!(sent[3].body[1]["value"][0]["fieldsV1"], fields);

    // A message about a duplicate value has no effect without `causes` in the details of the
    // Status.
    let mut told = failure(422);
    told.1["message"] = r#"spec.ports[1].name: Duplicate value: "http""#.into();
    let (result, sent) = adopted(vec![told, (200, edited)]).await;
    assert!(matches!(result, Err(ApplyError::NotAllowed(_))));
    assert!(sent.iter().all(|sent| sent.body[1]["path"].is_null()));
}

#[tokio::test]
async fn reports_rejected_change_of_list_ownership() {
    let fields = json!({"f:spec": {"f:ports": {"k:{}": {}}}});
    let edited = updated_by("kubectl-edit", &fields);
    let mut invalid = failure(422);
    invalid.1["message"] = "spec.ports[1].name: Duplicate value".into();
    invalid.1["details"] =
        json!({"causes": [{"reason": "FieldValueDuplicate", "field": "spec.ports[1].name"}]});
    let mut refused = failure(403);
    refused.1["message"] = "the policy keep-entries says no".into();
    // The server rejects the dry run of the patch as the requester, or the patch as the installer.
    for answers in [
        vec![invalid.clone(), (200, edited.clone()), refused.clone()],
        vec![
            invalid.clone(),
            (200, edited.clone()),
            (200, json!({})),
            refused.clone(),
        ],
    ] {
        let count = answers.len();
        let (result, sent) = adopted(answers).await;
        let Err(ApplyError::NotAllowed(refusal)) = result else {
            panic!("{result:?}")
        };
        let message = refusal.message();
        for part in ["Duplicate value", "the policy keep-entries says no"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(sent.len(), count);
    }
}
