//! Comparisons of dry runs as the requester and as the installer.

use super::ownership::{updated_by, users};
use super::*;

/// Returns the responses after which the pod patches `managedFields` of the object. The first
/// response rejects a dry run because of conflicting list items. The second response is the object
/// with its `managedFields`.
fn contested_list() -> Vec<(u16, Value)> {
    let mut invalid = failure(422);
    invalid.1["details"] =
        json!({"causes": [{"reason": "FieldValueDuplicate", "field": "spec.ports[1].name"}]});
    let fields = json!({"f:spec": {"f:ports": {"k:{}": {}}}});
    vec![invalid, (200, updated_by("kubectl-edit", &fields))]
}

/// Returns the responses to the patch of `managedFields`, to the read of the version, to both dry
/// runs of the apply, and to the apply. All of these requests succeed.
fn stored_and_applied() -> Vec<(u16, Value)> {
    let same = (200, live("theirs", "6", "theirs"));
    let applied = (200, live("theirs", "7", "content"));
    vec![same.clone(), same.clone(), same.clone(), same, applied]
}

/// Returns the response to a dry run in which mutating admission sets a label.
fn label(by: &str) -> (u16, Value) {
    let mut object = live("theirs", "5", "theirs");
    object["metadata"]["labels"] = json!({"by": by});
    (200, object)
}

/// Checks and applies an object whose kind has mutating admission. Returns the result and all
/// requests.
async fn installed_over_theirs(
    answers: Vec<(u16, Value)>,
) -> (Result<Applied, ApplyError>, Vec<SentRequest>) {
    let target = Target::Uid("theirs".to_owned());
    let (result, _, sent) = installed(target, (false, true), answers).await;
    (result, sent)
}

fn stores_nothing(sent: &[SentRequest]) -> bool {
    sent.iter()
        .all(|sent| sent.method == Method::GET || sent.is_dry_run())
}

#[tokio::test]
async fn rejects_apply_if_mutating_admission_depends_on_the_user() {
    let as_requester = |address: &str| json!({"metadata": {"labels": {"guard": "secret"}, "uid": address}, "data": {"random": address}});
    let as_installer = |random: &str| json!({"metadata": {}, "data": {"random": random}});
    let answers = vec![
        (201, as_requester("1")),
        (201, as_installer("3")),
        (201, as_requester("2")),
        (201, as_installer("4")),
    ];
    let (refused, _, sent) = installed(Target::Absent, (false, true), answers).await;
    assert_eq!(sent.len(), 4);
    let refusal = match refused {
        Err(ApplyError::NotAllowed(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refusal,
        ApplyRejection::MutatedDifferently(vec!["metadata.labels".to_owned()])
    );
    assert!(!refusal.message().contains("secret") && !refusal.may_change());
    assert!(sent.iter().all(SentRequest::is_dry_run));
    assert_eq!(sent[0].body, sent[1].body);

    let same = json!({"data": {}});
    let answers = vec![
        (201, same.clone()),
        (201, same),
        (201, live("new", "5", "content")),
    ];
    let (done, ..) = installed(Target::Absent, (false, true), answers).await;
    assert_eq!(done.unwrap().seen.uid, "new");
    // Without the result for the installer, no comparison is possible and nothing is applied.
    let answers = vec![(201, json!({})), failure(503)];
    let (unknown, ..) = installed(Target::Absent, (false, true), answers).await;
    assert!(matches!(
        unknown,
        Err(ApplyError::NotAllowed(ApplyRejection::Verdict(
            DryRunVerdict::Unknown(_)
        )))
    ));
}

#[tokio::test]
async fn random_field_of_the_requester_is_compared_with_a_second_result_of_the_installer() {
    let by = |user: &str| (201, json!({"metadata": {"labels": {"by": user}}}));
    for (answers, is_rejected) in [
        // Only the results for the requester have a random part.
        (vec![by("ana 1"), by("c"), by("ana 2"), by("c")], true),
        (vec![by("1"), by("2"), by("3"), by("4")], false),
        // No value is random, so no second dry run as the installer is sent.
        (vec![by("ana"), by("c"), by("ana")], true),
        // The value depends on the time, not on the user.
        (vec![by("10:01"), by("10:02"), by("10:02")], false),
    ] {
        let expected = answers.len();
        let (client, sent) = scripted(answers);
        let memory = AllowedDryRuns::default();
        let applies = checking(&client, &memory, (false, true));
        let item = PreparedObject::config_map();
        let prepared = applies.preparer.prepare(&item, Target::Absent).await;
        let asked = applies.dry_runs.check(prepared.unwrap()).await;
        let fields = vec!["metadata.labels.by".to_owned()];
        let rejection = is_rejected.then_some(ApplyRejection::MutatedDifferently(fields));
        assert_eq!(asked.err().map(|(_, refusal)| refusal), rejection);
        drop((applies, client));
        let users: Vec<String> = sent.await.unwrap().into_iter().map(|s| s.user).collect();
        assert_eq!(users, ["ana", "installer"].repeat(2)[..expected]);
    }
}

#[tokio::test]
async fn rejection_of_the_installer_is_no_comparison_and_is_not_cached() {
    let same = live("new", "5", "content");
    let (client, sent) = scripted(vec![
        (201, same.clone()),
        failure(403),
        (201, same.clone()),
        failure(403),
        (201, same.clone()),
        (201, same),
    ]);
    let memory = AllowedDryRuns::default();
    let applies = checking(&client, &memory, (false, true));
    let item = PreparedObject::config_map();
    let prepare = || applies.preparer.prepare(&item, Target::Absent);
    for _ in 0..2 {
        let asked = applies
            .check(prepare().await.unwrap(), true, Instant::now())
            .await;
        let (_, refusal) = asked.unwrap_err();
        assert_eq!(refusal, ApplyRejection::Installer("m".to_owned()));
        assert!(!refusal.may_change());
    }
    let asked = applies
        .check(prepare().await.unwrap(), true, Instant::now())
        .await;
    assert!(asked.is_ok());
    drop((applies, client));
    let users: Vec<String> = sent.await.unwrap().into_iter().map(|s| s.user).collect();
    assert_eq!(users, ["ana", "installer"].repeat(3));
}

#[tokio::test]
async fn cached_comparison_is_scoped_to_its_installer() {
    let (same, item) = (live("new", "5", "content"), PreparedObject::config_map());
    let memory = AllowedDryRuns::default();
    for (account, compares, expected) in [
        ("hers", true, 2),
        ("hers", true, 0),
        ("class", true, 2),
        ("class", false, 1),
        ("hers", false, 0),
        ("class", true, 0),
    ] {
        let (client, sent) = scripted(vec![(201, same.clone()); expected]);
        let mut applies = checking(&client, &memory, (false, compares));
        applies.dry_runs.account = ServiceAccount::parse("team-a", account).unwrap();
        let prepared = applies.preparer.prepare(&item, Target::Absent).await;
        let asked = applies.check(prepared.unwrap(), true, Instant::now()).await;
        assert!(asked.is_ok(), "{account} {compares}");
        drop((applies, client));
        assert_eq!(sent.await.unwrap().len(), expected, "{account} {compares}");
    }
}

#[tokio::test]
async fn rejects_objects_that_are_too_large_to_compare() {
    let mut large = live("ours", "5", "content");
    large["data"] = json!(vec![json!({"a": 0}); 120_000]);
    let small = live("ours", "5", "content");
    for answers in [
        vec![(200, large.clone())],
        vec![(200, small), (200, large.clone())],
    ] {
        let expected = answers.len();
        let (refused, _, sent) = installed(ours(), (false, true), answers).await;
        let refusal = match refused {
            Err(ApplyError::NotAllowed(refusal)) => refusal,
            other => panic!("{other:?}"),
        };
        assert!(matches!(
            refusal,
            ApplyRejection::Verdict(DryRunVerdict::Unsupported(_))
        ));
        assert!(refusal.message().contains("too large"), "{refusal:?}");
        assert_eq!(sent.len(), expected);
    }
    let answers = vec![(200, large), (200, live("ours", "6", "content"))];
    let (done, ..) = installed(ours(), (false, false), answers).await;
    assert_eq!(done.unwrap().seen.uid, "ours");
}

#[tokio::test]
async fn results_for_different_versions_of_an_object_are_not_compared() {
    let at = |version: &str, data: &str| (200, live("ours", version, data));
    for answers in [
        vec![at("5", "content"), at("6", "content")],
        // Another actor writes the object between the dry runs. If the resourceVersions were not
        // compared, a field of the object could seem to be random.
        vec![at("5", "hers"), at("5", "installer"), at("6", "flipped")],
    ] {
        let expected = answers.len();
        let (client, sent) = scripted(answers);
        let memory = AllowedDryRuns::default();
        let applies = checking(&client, &memory, (false, true));
        let item = PreparedObject::config_map();
        let prepared = in_version(applies.preparer.prepare(&item, ours()).await.unwrap());
        let asked = applies.dry_runs.check(prepared).await;
        let (_, refusal) = asked.unwrap_err();
        assert!(refusal.may_change(), "{refusal:?}");
        assert!(refusal.message().contains("changed"), "{refusal:?}");
        drop((applies, client));
        assert_eq!(sent.await.unwrap().len(), expected);
    }
}

#[tokio::test]
async fn patch_of_field_owners_is_not_stored_if_mutating_admission_depends_on_the_user() {
    let plain = || (200, live("theirs", "5", "theirs"));
    for (results, field) in [
        (vec![plain(), label("c"), plain()], "metadata.labels"),
        // Only the results for the requester have a random part.
        (
            vec![label("ana 1"), label("c"), label("ana 2"), label("c")],
            "metadata.labels.by",
        ),
    ] {
        let answers = [contested_list(), results].concat();
        let expected = answers.len();
        let (refused, sent) = installed_over_theirs(answers).await;
        let refusal = match refused {
            Err(ApplyError::NotAllowed(refusal)) => refusal,
            other => panic!("{other:?}"),
        };
        let fields = vec![field.to_owned()];
        assert_eq!(refusal, ApplyRejection::MutatedDifferently(fields));
        assert!(stores_nothing(&sent), "{sent:?}");
        assert_eq!(users(&sent), ["ana", "installer"].repeat(3)[..expected]);
        for patch in &sent[2..] {
            assert_eq!(patch.body[1]["path"], "/metadata/managedFields");
            assert_eq!(patch.body, sent[2].body);
        }
    }
}

#[tokio::test]
async fn patch_of_field_owners_is_stored_if_mutating_admission_does_not_depend_on_the_user() {
    for results in [
        vec![label("all"), label("all")],
        // The value is random, and does not depend on the user.
        vec![label("1"), label("2"), label("3"), label("4")],
    ] {
        let compared = results.len();
        let answers = [contested_list(), results, stored_and_applied()].concat();
        let (done, sent) = installed_over_theirs(answers).await;
        assert_eq!(done.unwrap().seen.uid, "theirs");
        let (dry_runs, rest) = sent[2..].split_at(compared);
        let [patch, _, _, _, apply] = rest else {
            panic!("{sent:?}");
        };
        assert!(stores_nothing(dry_runs), "{sent:?}");
        let expected = ["ana", "installer"].repeat(2);
        assert_eq!(users(dry_runs), expected[..compared]);
        assert!(dry_runs.iter().all(|dry_run| dry_run.body == patch.body));
        assert_eq!(patch.body[1]["value"][0]["manager"], "bundle-webhook");
        assert!(!patch.is_dry_run() && !apply.is_dry_run());
        let expected = ["installer", "installer", "ana", "installer", "installer"];
        assert_eq!(users(rest), expected);
    }
}

#[tokio::test]
async fn patch_of_field_owners_is_not_stored_if_the_installer_is_rejected() {
    let answers = [contested_list(), vec![label("ana"), failure(403)]].concat();
    let (refused, sent) = installed_over_theirs(answers).await;
    let rejected = matches!(
        refused,
        Err(ApplyError::NotAllowed(ApplyRejection::Installer(_)))
    );
    assert!(rejected, "{refused:?}");
    assert!(stores_nothing(&sent), "{sent:?}");
    assert_eq!(users(&sent), ["ana", "installer", "ana", "installer"]);
}

#[tokio::test]
async fn patch_of_field_owners_is_compared_again_after_the_object_changed() {
    let (same, changed) = (label("all"), (200, live("theirs", "6", "theirs")));
    let [rejected, owners] = <[_; 2]>::try_from(contested_list()).unwrap();
    let different_versions = vec![rejected, owners.clone(), same.clone(), changed];
    let again = vec![owners, same.clone(), same];
    let answers = [different_versions, again, stored_and_applied()].concat();
    let (done, sent) = installed_over_theirs(answers).await;
    assert_eq!(done.unwrap().seen.uid, "theirs");
    assert!(stores_nothing(&sent[..7]), "{sent:?}");
    assert!(!sent[7].is_dry_run() && sent[7].body == sent[6].body);
}

#[tokio::test]
async fn patch_of_a_kind_that_records_its_requester_is_not_compared() {
    let mut recording = PreparedObject::config_map();
    recording.id.group = "certificates.k8s.io".to_owned();
    recording.id.kind = "CertificateSigningRequest".to_owned();
    for (item, expected) in [(PreparedObject::config_map(), 2), (recording, 1)] {
        let (client, sent) = scripted(vec![label("all"); expected]);
        let memory = AllowedDryRuns::default();
        let applies = checking(&client, &memory, (false, true));
        let patch = serde_json::from_value(json!([])).unwrap();
        let checked = applies.dry_runs.check_patch(&item, &patch).await;
        assert_eq!(checked, Ok(()));
        drop((applies, client));
        let sent = sent.await.unwrap();
        assert_eq!(users(&sent), ["ana", "installer"][..expected]);
    }
}
