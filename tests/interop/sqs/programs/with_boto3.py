"""boto3: the JSON protocol."""

import boto3
import botocore.loaders
import botocore.session
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.interop.sqs.programs.client_api import Api, Endpoint, Params, Refused, Result

# One try: what fails is seen, and no send happens twice.
CONFIG = Config(
    retries={"total_max_attempts": 1},
    max_pool_connections=32,
    read_timeout=60,
    connect_timeout=10,
)

# The files that botocore makes a client from; to read them takes longer than most requests.
LOADER = botocore.loaders.create_loader()


def client_of(endpoint: Endpoint, config: Config = CONFIG) -> "boto3.client":
    """Return boto3's client for an endpoint, in a session of its own."""
    core = botocore.session.get_session()
    core.register_component("data_loader", LOADER)
    session = boto3.session.Session(
        botocore_session=core,
        aws_access_key_id=endpoint.key_id,
        aws_secret_access_key=endpoint.secret,
        region_name=endpoint.region,
    )
    return session.client("sqs", endpoint_url=endpoint.url, config=config)


def refusal(error: ClientError) -> Refused:
    """Return what a client error of botocore says."""
    told = error.response
    status = told["ResponseMetadata"]["HTTPStatusCode"]
    return Refused(told["Error"]["Code"], told["Error"]["Message"], status)


class Boto3(Api):
    """The SDK for Python."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.client = client_of(endpoint)

    def perform(self, action: str, params: Params) -> Result:
        """Call the client's method of the action's name."""
        try:
            found: Result = getattr(self.client, xform_name(action))(**params)
        except ClientError as error:
            raise refusal(error) from None
        del found["ResponseMetadata"]
        return found

    def close(self) -> None:
        """Close its connections."""
        super().close()
        self.client.close()
