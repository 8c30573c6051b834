"""Start of logins by tokens, where the config has them. Their library is an extra."""

from contextlib import AsyncExitStack
from importlib import import_module

import structlog

from gateway.auth.bearer_login import Tokens
from gateway.clock import Clock
from gateway.config.oauth import OauthConfig
from gateway.errors import InvalidSettings, StorageUnavailable
from gateway.installation import install_command
from gateway.metrics import Metrics

log = structlog.get_logger()


async def start_tokens(
    config: OauthConfig, clock: Clock, metrics: Metrics, stack: AsyncExitStack
) -> Tokens | None:
    """Return the validation of tokens, with its keys read; None without ``oauth.jwks``.

    A file that cannot be read refuses the start; a URL is read again with the first logins.
    Error: ``InvalidSettings``.
    """
    if config.jwks is None:
        return None
    try:
        jwks = import_module("gateway.auth.jwks")
        tokens = import_module("gateway.auth.tokens")
    except ModuleNotFoundError as error:
        msg = f"oauth.jwks: needs the extra oauth: {install_command('oauth')}"
        raise InvalidSettings(msg) from error
    keys = jwks.KeySet(config, clock)
    stack.push_async_callback(keys.close)
    metrics.counter_fn(
        "headgate_oauth_key_reads_failed_total",
        "Reads of the keys of tokens that failed.",
        lambda: keys.reads_failed,
    )
    try:
        await keys.load()
    except StorageUnavailable as error:
        if not config.is_url:
            raise InvalidSettings(f"oauth.jwks: {error}") from error
        log.warning("keys of tokens cannot be read yet", error=str(error))
    validator: Tokens = tokens.TokenValidator(config, keys, clock)
    return validator
