//! Errors as one line for a log: the action, then its causes, each told once.
//! Not here: findings for people, which have codes and hints (bundle_core::diagnostic).

use std::error::Error;

use kube::core::Status;
use kube::runtime::watcher;

/// An error with its causes, on one line.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = describe(error);
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = describe(cause);
        // Libraries often repeat the cause in their own message.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// What one error says, without the dump of the whole answer that some libraries add.
fn describe(error: &(dyn Error + 'static)) -> String {
    let status = |status: &Status| {
        if status.message.is_empty() {
            format!("{} {}", status.code, status.reason)
        } else {
            status.message.clone()
        }
    };
    if let Some(kube::Error::Api(answer)) = error.downcast_ref() {
        return status(answer);
    }
    if let Some(answer) = error.downcast_ref::<Status>() {
        return status(answer);
    }
    if let Some(answer) = error.downcast_ref::<Box<Status>>() {
        return status(answer);
    }
    match error.downcast_ref::<watcher::Error>() {
        Some(watcher::Error::InitialListFailed(_)) => "cannot list".to_owned(),
        Some(watcher::Error::WatchStartFailed(_) | watcher::Error::WatchError(_)) => {
            "cannot watch".to_owned()
        }
        Some(watcher::Error::WatchFailed(_)) => "the watch broke off".to_owned(),
        Some(watcher::Error::NoResourceVersion) | None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot create Secret a")]
    struct Outer {
        source: kube::Error,
    }

    #[test]
    fn an_answer_of_the_api_server_is_its_message_told_once() {
        let status = Status {
            message: "namespaces \"b\" not found".into(),
            reason: "NotFound".into(),
            code: 404,
            ..Status::default()
        };
        let outer = Outer {
            source: kube::Error::Api(Box::new(status)),
        };
        assert_eq!(
            chain(&outer),
            "cannot create Secret a: namespaces \"b\" not found"
        );
        let Outer { source } = outer;
        assert_eq!(
            chain(&watcher::Error::InitialListFailed(source)),
            "cannot list: namespaces \"b\" not found"
        );
    }
}
