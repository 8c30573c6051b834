"""ACL APIs, and the APIs that manage SCRAM users."""

import hashlib
from typing import Any, TypeAlias

import pytest
from kafka.protocol.admin import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeUserScramCredentialsRequest,
)

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.errors import ErrorCode
from adapters.mqtt.rule_types import FILTER, MQTT_TOPIC
from gateway.auth.ports import CLUSTER, Operation, PatternKind, ResourceType, Rule
from gateway.errors import Unauthorized
from tests.adapters.kafka.handlers.handler_fixture import Rig

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER_TYPE, USER = 2, 3, 4, 7
READ, WRITE, ALL = 3, 4, 2
DENY, ALLOW = 2, 3
SHA_256, SHA_512 = 1, 2

Creation: TypeAlias = CreateAclsRequest.AclCreation
Filter: TypeAlias = DeleteAclsRequest.DeleteAclsFilter
Deletion: TypeAlias = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion: TypeAlias = AlterUserScramCredentialsRequest.ScramCredentialUpsertion


def acl(**fields: Any) -> Creation:
    defaults = {
        "resource_type": TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": LITERAL,
        "principal": "User:ada",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return Creation(**(defaults | fields))


def meaning(**fields: Any) -> dict[str, Any]:
    defaults = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return defaults | fields


async def create(rig: Rig, *acls: Creation, version: int = 3, **fields: Any) -> list[int]:
    answer = await rig.ask("create_acls", version, creations=list(acls), **fields)
    return [result.error_code.value for result in answer.results]


async def describe(rig: Rig, *, version: int = 3, **fields: Any) -> set[tuple[Any, ...]]:
    answer = await rig.ask("describe_acls", version, **meaning(**fields))
    assert answer.error_code.value == ErrorCode.NONE
    return {
        (
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for resource in answer.resources
        for one in resource.acls
    }


@pytest.mark.parametrize("version", range(1, 4))
async def test_acls_become_rules_and_are_shown_as_they_were(rig: Rig, version: int) -> None:
    codes = await create(
        rig,
        acl(),
        acl(resource_name="or", resource_pattern_type=PREFIXED, permission_type=DENY),
        acl(resource_name="*", principal="User:*", host="10.1.2.3", operation=ALL),
        acl(resource_type=CLUSTER_TYPE, resource_name=CLUSTER, operation=8),
        version=version,
    )

    assert codes == [ErrorCode.NONE] * 4
    assert await describe(rig, version=version) == {
        (TOPIC, "orders", LITERAL, "User:ada", "*", READ, ALLOW),
        (TOPIC, "or", PREFIXED, "User:ada", "*", READ, DENY),
        (TOPIC, "*", LITERAL, "User:*", "10.1.2.3", ALL, ALLOW),
        (CLUSTER_TYPE, CLUSTER, LITERAL, "User:ada", "*", 8, ALLOW),
    }


async def test_an_acl_holds_for_the_next_request(rig: Rig) -> None:
    ada = rig.login("ada")
    await create(rig, acl(operation=WRITE))

    assert ada.allows(Operation.WRITE, ResourceType.TOPIC, "orders")
    assert not ada.allows(Operation.READ, ResourceType.TOPIC, "orders")


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": USER},
        {"resource_type": 0},
        {"resource_name": ""},
        {"resource_type": CLUSTER_TYPE},
        {"resource_pattern_type": MATCH},
        {"resource_pattern_type": ANY},
        {"principal": "Group:ops"},
        {"principal": "User:"},
        {"operation": ANY},
        {"operation": 13},
        {"permission_type": ANY},
    ],
)
async def test_an_acl_without_sense_is_refused_and_the_others_stand(
    rig: Rig, wrong: dict[str, Any]
) -> None:
    codes = await create(rig, acl(**wrong), acl())

    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert len(rig.rules.stored_rules()) == 1


@pytest.mark.parametrize(
    ("fields", "principals"),
    [
        ({}, "abcd"),
        ({"resource_type_filter": TOPIC}, "abc"),
        ({"resource_type_filter": GROUP}, "d"),
        ({"resource_name_filter": "orders"}, "ad"),
        ({"resource_name_filter": "orders", "pattern_type_filter": LITERAL}, "ad"),
        ({"resource_name_filter": "or", "pattern_type_filter": PREFIXED}, "b"),
        ({"resource_name_filter": "orders", "pattern_type_filter": PREFIXED}, ""),
        ({"resource_name_filter": "orders", "pattern_type_filter": MATCH}, "abcd"),
        ({"resource_name_filter": "other", "pattern_type_filter": MATCH}, "c"),
        ({"principal_filter": "User:b"}, "b"),
        ({"host_filter": "10.0.0.9"}, "c"),
        ({"operation": WRITE}, "b"),
        ({"permission_type": DENY}, "d"),
    ],
)
async def test_filters_match_as_the_java_clients_do(
    rig: Rig, fields: dict[str, Any], principals: str
) -> None:
    await create(
        rig,
        acl(principal="User:a"),
        acl(
            principal="User:b",
            resource_name="or",
            resource_pattern_type=PREFIXED,
            operation=WRITE,
        ),
        acl(principal="User:c", resource_name="*", host="10.0.0.9"),
        acl(principal="User:d", resource_type=GROUP, permission_type=DENY),
    )

    found = await describe(rig, **fields)

    assert {principal for *_, principal, _, _, _ in found} == {
        f"User:{letter}" for letter in principals
    }


@pytest.mark.parametrize("version", range(1, 4))
async def test_acls_are_deleted_by_filter(rig: Rig, version: int) -> None:
    await create(rig, acl(), acl(operation=WRITE), acl(principal="User:bob"))

    answer = await rig.ask(
        "delete_acls", version, filters=[Filter(**meaning(principal_filter="User:ada"))]
    )

    [result] = answer.filter_results
    assert {(one.principal, one.operation) for one in result.matching_acls} == {
        ("User:ada", READ),
        ("User:ada", WRITE),
    }
    assert {principal for *_, principal, _, _, _ in await describe(rig)} == {"User:bob"}


async def test_rules_of_other_protocols_are_neither_shown_nor_deleted(rig: Rig) -> None:
    other = Rule(
        "ada", Operation.READ, ResourceType.TOPIC, PatternKind.ANY, "", protocol="mqtt"
    )
    await rig.rules.add_rules([other])

    assert await describe(rig) == set()
    await rig.ask("delete_acls", 3, filters=[Filter(**meaning())])
    assert list(rig.rules.stored_rules()) == [other]


async def test_rules_for_mqtt_topics_are_no_acls(rig: Rig) -> None:
    """Rules for MQTT topics are no resource of Kafka: not listed, not created, not deleted."""
    mqtt = Rule("ada", Operation.ALL, MQTT_TOPIC, FILTER, "a/%c/#")
    denial = mqtt._replace(principal="*", pattern="#", client="dev1", allow=False)
    await rig.rules.add_rules([mqtt, denial])

    assert await describe(rig) == set()
    assert await describe(rig, resource_name_filter="#", pattern_type_filter=MATCH) == set()
    answer = await rig.ask("delete_acls", 3, filters=[Filter(**meaning())])
    assert [list(result.matching_acls) for result in answer.filter_results] == [[]]
    assert list(rig.rules.stored_rules()) == [mqtt, denial]
    unknown = await rig.ask("describe_acls", 3, **meaning(resource_type_filter=8))
    assert unknown.error_code.value == ErrorCode.INVALID_REQUEST
    assert await create(rig, acl(resource_type=8)) == [ErrorCode.INVALID_REQUEST]
    assert not rig.login("ada").allows(Operation.READ, ResourceType.TOPIC, "orders")


async def test_a_filter_with_unknown_numbers_is_refused(rig: Rig) -> None:
    answer = await rig.ask("describe_acls", 3, **meaning(operation=99))

    assert answer.error_code.value == ErrorCode.INVALID_REQUEST


async def test_acls_need_rights_to_the_cluster(rig: Rig) -> None:
    await rig.allow("ada", Operation.READ, "topic", "")
    ada = rig.login("ada")

    created = await create(rig, acl(), session=ada)
    described = await rig.ask("describe_acls", 3, session=ada, **meaning())
    deleted = await rig.ask("delete_acls", 3, session=ada, filters=[Filter(**meaning())])

    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert created == [refused]
    assert described.error_code.value == refused
    assert deleted.filter_results[0].error_code.value == refused
    assert len(rig.rules.stored_rules()) == 1


def upsert(name: str = "ada", mechanism: int = SHA_256, **fields: Any) -> Upsertion:
    digest = "sha256" if mechanism == SHA_256 else "sha512"
    salt, iterations = b"salt-of-ada", 4_096
    defaults = {
        "iterations": iterations,
        "salt": salt,
        "salted_password": hashlib.pbkdf2_hmac(digest, b"secret", salt, iterations),
    }
    return Upsertion(name=name, mechanism=mechanism, **(defaults | fields))


async def alter(rig: Rig, **fields: Any) -> dict[str, int]:
    changes = {"deletions": [], "upsertions": []} | fields
    answer = await rig.ask("alter_user_scram_credentials", 0, **changes)
    return {result.user: result.error_code.value for result in answer.results}


async def test_a_user_that_a_client_salted_can_log_in(rig: Rig) -> None:
    assert await alter(rig, upsertions=[upsert()]) == {"ada": ErrorCode.NONE}

    assert await rig.users.authenticate_plain("ada", "secret") == "ada"
    answer = await rig.ask("describe_user_scram_credentials", 0, users=None)
    [result] = answer.results
    infos = [(info.mechanism, info.iterations) for info in result.credential_infos]
    assert (result.user, infos) == ("ada", [(SHA_256, 4_096)])


async def test_users_made_by_who_is_anonymous_lock_nobody_out(rig: Rig) -> None:
    rig.users.policy.required = False
    anonymous = rig.login("ANONYMOUS")

    codes = await alter(rig, upsertions=[upsert("ada"), upsert("bob")], session=anonymous)
    again = await alter(rig, upsertions=[upsert("carol")], session=anonymous)

    assert codes == {"ada": ErrorCode.NONE, "bob": ErrorCode.NONE}
    assert again == {"carol": ErrorCode.NONE}
    assert not rig.users.required


async def test_one_mechanism_is_removed_and_the_other_stays(rig: Rig) -> None:
    await rig.users.put_user("ada", "secret")

    code = await alter(rig, deletions=[Deletion(name="ada", mechanism=SHA_512)])

    assert code == {"ada": ErrorCode.NONE}
    assert len(rig.users.credentials("ada")) == 1


async def test_the_last_user_may_go_and_login_stays_required(rig: Rig) -> None:
    await alter(rig, upsertions=[upsert("ada")])

    gone = await alter(rig, deletions=[Deletion(name="ada", mechanism=SHA_256)])

    assert gone == {"ada": ErrorCode.NONE}
    assert rig.users.names() == []
    assert rig.users.required


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"upsertions": [upsert(iterations=4_095)]}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"upsertions": [upsert(iterations=1_000_001)]}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"upsertions": [upsert(salt=b"")]}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"upsertions": [upsert(salted_password=b"x")]}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"upsertions": [upsert(mechanism=3)]}, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ({"upsertions": [upsert(), upsert()]}, ErrorCode.DUPLICATE_RESOURCE),
        (
            {"deletions": [Deletion(name="ada", mechanism=SHA_256)]},
            ErrorCode.RESOURCE_NOT_FOUND,
        ),
    ],
)
async def test_what_no_credential_can_be_gets_kafkas_code(
    rig: Rig, change: dict[str, Any], code: ErrorCode
) -> None:
    assert await alter(rig, **change) == {"ada": code}
    assert rig.users.names() == []


@pytest.mark.parametrize("name", ["", "ANONYMOUS", "*", "x" * 300])
async def test_what_no_user_is_called_is_refused(rig: Rig, name: str) -> None:
    codes = await alter(rig, upsertions=[upsert(name)])

    assert codes == {name: ErrorCode.UNACCEPTABLE_CREDENTIAL}


async def test_unknown_and_repeated_users_are_told_apart(rig: Rig) -> None:
    await alter(rig, upsertions=[upsert("ada")])
    asked = [
        DescribeUserScramCredentialsRequest.UserName(name=name)
        for name in ("ada", "ada", "eve")
    ]

    answer = await rig.ask("describe_user_scram_credentials", 0, users=asked)

    assert {result.user: result.error_code.value for result in answer.results} == {
        "ada": ErrorCode.DUPLICATE_RESOURCE,
        "eve": ErrorCode.RESOURCE_NOT_FOUND,
    }


async def test_users_need_rights_to_the_cluster(rig: Rig) -> None:
    await rig.users.put_user("ada", "secret")
    await rig.allow("ada", Operation.READ, "topic", "")
    ada = rig.login("ada")

    described = await rig.ask("describe_user_scram_credentials", 0, session=ada, users=None)
    altered = await alter(rig, upsertions=[upsert("bob")], session=ada)

    assert described.error_code.value == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert altered == {"bob": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


async def test_rules_are_not_managed_from_another_namespace(rig: Rig) -> None:
    rig.session.namespace = "other"
    assert await create(rig, acl()) == [ErrorCode.POLICY_VIOLATION.value]
    assert rig.rules.stored_rules() == []


async def test_rules_name_what_is_in_another_namespace_after_it(rig: Rig) -> None:
    rig.session.principal = rig.session.principal._replace(name="ada")
    await rig.allow("ada", Operation.READ, "topic", "other/")
    rig.session.namespace = "other"
    assert rig.session.allows(Operation.READ, ResourceType.TOPIC, "orders")
    await rig.rules.add_rules(
        [Rule("bob", Operation.READ, ResourceType.TOPIC, PatternKind.LITERAL, "other/private")]
    )
    assert rig.session.allows(Operation.READ, ResourceType.TOPIC, "private")
    rig.session.principal = rig.session.principal._replace(name="carol")
    assert not rig.session.allows(Operation.READ, ResourceType.TOPIC, "private")


async def test_the_name_of_a_topic_asked_for_by_its_id_stays_unsaid(rig: Rig) -> None:
    topic = await rig.topic("secret-plans")
    await rig.allow("ada", Operation.ALL, "topic", "mine-")
    with pytest.raises(Unauthorized) as caught:
        topic_for(rig.login("ada"), topic.uuid, Operation.WRITE)
    assert "secret" not in str(caught.value)
