//! Login in a browser on this machine. The issuer redirects the browser to a local port with a
//! code. This program exchanges the code for a token (authorization code with PKCE).

use bundle_core::diagnostic::{Finding, codes};
use url::Url;

use super::callback::Callback;
use super::discovery::Endpoints;
use super::opener::Opener;
use super::{ErrorResponse, ISSUER, Login, SCOPE, TokenResponse, claims, form, pkce, unusable};
use crate::failure::Outcome;
use crate::sigstore::http::HttpClients;
use crate::sigstore::secret::Secret;
use crate::ui::Ui;

pub(super) async fn token(
    login: &Login,
    opener: Option<&Opener>,
    endpoints: &Endpoints,
    http: &HttpClients,
    ui: &mut Ui,
) -> Outcome<Secret> {
    let endpoint = endpoints.authorization.as_ref().ok_or_else(|| {
        unusable("it has no authorization_endpoint, so a login in a browser is not possible")
    })?;
    let (verifier, state, nonce) = (pkce::random()?, pkce::random()?, pkce::random()?);
    let callback = Callback::listen().await?;
    let redirect = callback.address();
    let url = authorization_url(login, endpoint, &redirect, &state, &nonce, &verifier);
    let is_opening = opener.is_some_and(|opener| opener.open(&url));
    ui.prompt(if is_opening {
        format!(
            "log in with the browser that opens now. If no browser opens, open this URL:\n{url}"
        )
    } else {
        format!(
            "log in with a browser on this machine, at\n{url}\n(on another machine: \
            --fulcio-auth-flow device)"
        )
    });
    let code = {
        let _progress = ui.progress("waiting for the login");
        callback.code(state, &login.issuer).await?
    };
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code.expose()),
        ("redirect_uri", &redirect),
        ("client_id", &login.client),
        ("code_verifier", &verifier),
    ];
    let (is_success, answer) = http
        .send_with_error_body(form(&endpoints.token, &fields))
        .await?;
    if !is_success {
        let words = serde_json::from_slice::<ErrorResponse>(&answer)
            .map_or_else(|_| "no reason given".to_owned(), |refusal| refusal.words());
        return Err(Finding::error(
            codes::trust::SERVICE_REFUSED,
            format!("{ISSUER} rejects the login: {words}"),
        )
        .hint("nothing was signed; check that the issuer knows this client (--oidc-client-id)")
        .into());
    }
    let granted: TokenResponse =
        serde_json::from_slice(&answer).map_err(|_| unusable("it contains no identity token"))?;
    claims::check(login, &granted.id_token, Some(&nonce))?;
    Ok(granted.id_token)
}

/// Returns the authorization URL (RFC 6749, section 4.1.1) with PKCE (RFC 7636).
fn authorization_url(
    login: &Login,
    endpoint: &Url,
    redirect: &str,
    state: &str,
    nonce: &str,
    verifier: &str,
) -> Url {
    let mut url = endpoint.clone();
    url.query_pairs_mut().extend_pairs([
        ("response_type", "code"),
        ("client_id", &login.client),
        ("redirect_uri", redirect),
        ("scope", SCOPE),
        ("state", state),
        ("nonce", nonce),
        ("code_challenge", &pkce::challenge(verifier)),
        ("code_challenge_method", "S256"),
    ]);
    url
}
