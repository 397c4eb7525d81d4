//! Login on another device (RFC 8628): the user enters a code on that device, and this program
//! polls for the token.

use std::time::{Duration, Instant};

use bundle_core::diagnostic::codes;
use bundle_core::plan::backoff::Backoff;
use serde::Deserialize;
use url::Url;

use super::discovery::Endpoints;
use super::{ErrorResponse, Login, SCOPE, TokenResponse, claims, form, pkce, rejected, unusable};
use crate::failure::{Failure, Outcome};
use crate::sigstore::http::HttpClients;
use crate::sigstore::secret::Secret;
use crate::system::delays;
use crate::ui::{Ui, safe};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Maximum time for the login in seconds, even if the issuer allows more time.
const MAX_LOGIN_SECONDS: u64 = 15 * 60;
/// Maximum number of consecutive failed polls.
const MAX_FAILURES: u32 = 3;

#[derive(Deserialize)]
struct DeviceAuthorization {
    device_code: Secret,
    user_code: String,
    #[serde(alias = "verification_url")]
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

/// Result of a poll.
enum PollResult {
    Token(Secret),
    Wait,
    WaitLonger,
    Refused(Failure),
}

pub(super) async fn token(
    login: &Login,
    endpoints: &Endpoints,
    http: &HttpClients,
    ui: &mut Ui,
) -> Outcome<Secret> {
    let endpoint = endpoints.device.as_ref().ok_or_else(|| {
        unusable("it has no device_authorization_endpoint, so a login with a code is not possible")
    })?;
    let verifier = pkce::random()?;
    let fields = [
        ("client_id", login.client.as_str()),
        ("scope", SCOPE),
        ("code_challenge", &pkce::challenge(&verifier)),
        ("code_challenge_method", "S256"),
    ];
    let answer = http.send(form(endpoint, &fields)).await?;
    let authorization: DeviceAuthorization = serde_json::from_slice(&answer)
        .map_err(|_| unusable("it is not a device authorization response"))?;
    show_code(&authorization, endpoint, ui)?;
    let fields = [
        ("grant_type", GRANT),
        ("client_id", login.client.as_str()),
        ("device_code", authorization.device_code.expose()),
        ("code_verifier", &verifier),
    ];
    let _progress = ui.progress("waiting for the login");
    let end = Instant::now() + Duration::from_secs(authorization.expires_in.min(MAX_LOGIN_SECONDS));
    let mut pause = authorization
        .interval
        .map_or(delays::POLL, Duration::from_secs)
        .clamp(Duration::from_secs(1), delays::LONGEST_POLL);
    let mut silent = 0;
    loop {
        tokio::time::sleep(pause).await;
        if Instant::now() >= end {
            return Err(rejected("the code has expired").into());
        }
        match http
            .send_with_error_body(form(&endpoints.token, &fields))
            .await
        {
            Err(failure) => {
                silent += 1;
                if silent == MAX_FAILURES {
                    return Err(failure);
                }
                pause = Backoff::new(pause, delays::LONGEST_POLL).delay(2);
            }
            Ok((is_success, answer)) => {
                silent = 0;
                match redirect_result(is_success, &answer) {
                    PollResult::Token(token) => {
                        claims::check(login, &token, None)?;
                        return Ok(token);
                    }
                    PollResult::Wait => {}
                    PollResult::WaitLonger => pause += delays::POLL_INCREASE,
                    PollResult::Refused(failure) => return Err(failure),
                }
            }
        }
    }
}

/// Prints the URL and the code. Both are untrusted text from the issuer.
fn show_code(authorization: &DeviceAuthorization, asked: &Url, ui: &mut Ui) -> Outcome {
    let code = authorization.user_code.trim();
    if code.is_empty() || code.len() > 64 || !code.chars().all(|one| one.is_ascii_graphic()) {
        return Err(unusable("its code cannot be typed").into());
    }
    let endpoint = |text: &str| {
        Url::parse(text)
            .ok()
            .filter(|url| url.scheme() == asked.scheme() || url.scheme() == "https")
            .ok_or_else(|| unusable("the URL for the code does not use TLS"))
    };
    let bare = endpoint(&authorization.verification_uri)?;
    match &authorization.verification_uri_complete {
        Some(text) => ui.prompt(format!(
            "log in at {}\nwith the code {code}",
            safe(endpoint(text)?.as_str())
        )),
        None => ui.prompt(format!(
            "log in at {}\nwith the code {code}",
            safe(bare.as_str())
        )),
    }
    Ok(())
}

fn redirect_result(is_success: bool, answer: &[u8]) -> PollResult {
    if is_success {
        return match serde_json::from_slice::<TokenResponse>(answer) {
            Ok(granted) => PollResult::Token(granted.id_token),
            Err(_) => PollResult::Refused(unusable("it contains no identity token").into()),
        };
    }
    let Ok(refusal) = serde_json::from_slice::<ErrorResponse>(answer) else {
        return PollResult::Refused(unusable("it is neither a token nor an error").into());
    };
    match refusal.error.as_str() {
        "authorization_pending" => PollResult::Wait,
        "slow_down" => PollResult::WaitLonger,
        "expired_token" => PollResult::Refused(rejected("the code has expired").into()),
        "access_denied" => PollResult::Refused(rejected("the login was denied").into()),
        _ => PollResult::Refused(
            bundle_core::diagnostic::Finding::error(
                codes::trust::SERVICE_REFUSED,
                format!("{} rejects the login: {}", super::ISSUER, refusal.words()),
            )
            .hint("nothing was signed; check that the issuer knows this client (--oidc-client-id)")
            .into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuer_can_slow_down_or_end_the_polling() {
        let says =
            |error: &str| redirect_result(false, format!(r#"{{"error":"{error}"}}"#).as_bytes());
        assert!(matches!(says("authorization_pending"), PollResult::Wait));
        assert!(matches!(says("slow_down"), PollResult::WaitLonger));
        for ended in ["expired_token", "access_denied", "invalid_client", ""] {
            assert!(matches!(says(ended), PollResult::Refused(_)), "{ended}");
        }
        assert!(matches!(
            redirect_result(true, br#"{"id_token":"a.b.c"}"#),
            PollResult::Token(_)
        ));
        for answer in ["", "{}", r#"{"access_token":"a"}"#, "[]"] {
            for is_success in [true, false] {
                assert!(matches!(
                    redirect_result(is_success, answer.as_bytes()),
                    PollResult::Refused(_)
                ));
            }
        }
    }
}
