//! Passwords, tokens, and credentials after redirects.

use super::*;

#[tokio::test]
async fn authenticates_with_passwords_and_tokens() {
    for token in [false, true] {
        let login = bundle_testkit::Login {
            user: "ana".into(),
            password: "s3cret".into(),
            token,
        };
        let settings = Settings {
            login: Some(login),
            ..Settings::default()
        };
        let registry = Registry::start(settings).await.unwrap();
        let to: Reference = registry.reference("team/web:1").parse().unwrap();
        let bundle = packed("a: 1\n");

        for (client, who, code) in [
            (client(), "without a login", codes::registry::DENIED),
            (
                ana(&registry, "wrong"),
                "as ana",
                codes::registry::LOGIN_REFUSED,
            ),
        ] {
            let error = client
                .push(&bundle, &to, TagPolicy::Keep)
                .await
                .unwrap_err();
            assert_eq!(error.finding().code, code, "{error}");
            assert!(error.to_string().contains(who), "{error}");
            let error = client
                .signatures(&to.pin(bundle.digest.clone()))
                .await
                .unwrap_err();
            assert_eq!(error.finding().code, code, "never an empty list");
        }
        let client = ana(&registry, "s3cret");
        let pinned = client
            .push(&bundle, &to, TagPolicy::Keep)
            .await
            .unwrap()
            .pinned;
        client
            .pull_files(&pinned, &Limits::default())
            .await
            .unwrap();
        let bought = registry
            .lines()
            .iter()
            .filter(|line| line.contains("/token"))
            .count();
        // A client that is rejected requests one token for the push, and four tokens for the lookup
        // of signatures. The client that is accepted requests one token to write and one token to
        // read, and caches both.
        assert!(!token || bought <= 2 * 5 + 2, "{bought} tokens");
    }
}

#[tokio::test]
async fn speculative_reads_are_repeated_with_credentials() {
    for token in [false, true] {
        let login = bundle_testkit::Login {
            user: "ana".into(),
            password: "s3cret".into(),
            token,
        };
        let registry = Registry::start(Settings {
            login: Some(login),
            ..Settings::default()
        })
        .await
        .unwrap();
        let to: Reference = registry.reference("team/web:1").parse().unwrap();
        let owner = ana(&registry, "s3cret");
        let push = owner.push(&packed("a: 1\n"), &to, TagPolicy::Keep).await;
        let pinned = push.unwrap().pinned;
        let signature = owner.push_signature(&pinned, b"signature".to_vec());
        signature.await.unwrap();
        for fault in [None, Some(Fault::HiddenContent)] {
            registry.set_fault(fault.clone());
            let client = ana(&registry, "s3cret").with_speculative_reads();
            let before = registry.seen().len();
            let found = client.signatures(&pinned).await.unwrap();
            assert_eq!(found.len(), 1, "{fault:?}");
            let seen = registry.seen().split_off(before);
            let lists = seen.iter().filter(|seen| seen.path.contains("/referrers/"));
            let has_credentials: Vec<_> = lists.map(|seen| seen.authorization.is_some()).collect();
            assert_eq!(has_credentials, [false, true], "{fault:?}");
            let client = ana(&registry, "s3cret").with_speculative_reads();
            let digest = client.resolve(&to).await.unwrap();
            assert_eq!(&digest, pinned.digest(), "{fault:?}");
        }
        registry.set_fault(None);
        for (client, code) in [
            (client(), codes::registry::DENIED),
            (ana(&registry, "wrong"), codes::registry::LOGIN_REFUSED),
        ] {
            let client = client.with_speculative_reads();
            let error = client.signatures(&pinned).await.unwrap_err();
            assert_eq!(error.finding().code, code, "{error}");
        }
    }
}

#[tokio::test]
async fn credentials_are_not_sent_to_redirect_targets() {
    let elsewhere = Registry::without_faults().await.unwrap();
    let login = bundle_testkit::Login {
        user: "ana".into(),
        password: "s3cret".into(),
        token: false,
    };
    let registry = Registry::start(Settings {
        login: Some(login),
        ..Settings::default()
    })
    .await
    .unwrap();
    let to: Reference = registry.reference("team/web:1").parse().unwrap();
    let client = ana(&registry, "s3cret");
    let pinned = client
        .push(&packed("a: 1\n"), &to, TagPolicy::Keep)
        .await
        .unwrap()
        .pinned;
    let copy: Reference = elsewhere.reference("team/web:1").parse().unwrap();
    client
        .push(&packed("a: 1\n"), &copy, TagPolicy::Keep)
        .await
        .unwrap();

    let there = format!("http://{}/v2/team/web/blobs", elsewhere.host());
    registry.set_fault(Some(Fault::RedirectBlobs(there)));
    let before = elsewhere.seen().len();
    client
        .pull_files(&pinned, &Limits::default())
        .await
        .unwrap();
    let followed = elsewhere.seen().split_off(before);
    assert_eq!(followed.len(), 2);
    assert!(followed.iter().all(|seen| seen.authorization.is_none()));

    registry.set_fault(Some(Fault::RedirectBlobs("ftp://files.example.com".into())));
    let error = client
        .pull_files(&pinned, &Limits::default())
        .await
        .unwrap_err();
    assert_eq!(error.finding().code, codes::registry::REDIRECT);
    let round = format!("http://{}/v2/team/web/blobs", registry.host());
    registry.set_fault(Some(Fault::RedirectBlobs(round)));
    let error = client
        .pull_files(&pinned, &Limits::default())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("too many redirects"), "{error}");
}
