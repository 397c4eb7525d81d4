//! Source of the identity token for signing without a key: a flag, the environment, or a login.

use super::{Environment, unusable};
use crate::args::{AuthFlow, Keyless};
use crate::failure::Outcome;
use crate::sigstore::{LoginKind, Opener, TokenSource};

/// Returns the source of the token. A login is used only if it was requested or a user is present.
pub(super) fn source(args: &Keyless, environment: &Environment) -> Outcome<TokenSource> {
    let opener = || Opener::find(environment.graphical);
    let there = environment.token_source();
    Ok(match (&args.identity_token, args.fulcio_auth_flow) {
        (Some(_), Some(AuthFlow::Normal | AuthFlow::Device)) => {
            let why = "nobody has to log in where a token is given";
            return Err(unusable("--fulcio-auth-flow", why).into());
        }
        (Some(given), _) => TokenSource::Given(given.clone().into()),
        (None, Some(AuthFlow::Normal)) => TokenSource::Login(LoginKind::Browser(opener())),
        (None, Some(AuthFlow::Device)) => TokenSource::Login(LoginKind::Device),
        (None, None) if there.is_none() && environment.is_attended() => match opener() {
            Some(opener) => TokenSource::Login(LoginKind::Browser(Some(opener))),
            None => TokenSource::Login(LoginKind::Device),
        },
        (None, _) => there.unwrap_or(TokenSource::Missing),
    })
}
