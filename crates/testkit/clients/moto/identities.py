"""Asks an emulated AWS, as unmodified boto3 does, who it is: by each way to credentials that there is.

    identities.py URL KEYS_FILE TOKEN_FILE ROLE

One line for each way: the ARN that the credentials turn out to be of, or the code of the error.
"""

import os
import sys

import boto3
import botocore.exceptions

url, keys_file, token_file, role = sys.argv[1:]
os.environ.update(AWS_ENDPOINT_URL=url, AWS_DEFAULT_REGION="eu-west-1", AWS_EC2_METADATA_SERVICE_ENDPOINT=url)
with open(token_file) as file:
    token = file.read()


def whose(session):
    return session.client("sts").get_caller_identity()["Arn"]


def session(credentials):
    names = {name.lower(): value for name, value in credentials.items()}
    return boto3.Session(names["accesskeyid"], names["secretaccesskey"], names["sessiontoken"])


def user():
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = keys_file
    return boto3.Session()


def assumed(**more):
    # Blanks, signs and letters that a canonical form must treat with care.
    tags = [{"Key": "a b", "Value": "c+d/é=~*"}]
    answer = user().client("sts").assume_role(RoleArn=role, RoleSessionName="signed", Tags=tags, **more)
    return session(answer["Credentials"])


def by_token():
    answer = user().client("sts").assume_role_with_web_identity(
        RoleArn=role, RoleSessionName="token", WebIdentityToken=token
    )
    return session(answer["Credentials"])


def by_eks():
    answer = user().client("eks-auth").assume_role_for_pod_identity(clusterName="reef", token=token)
    return session(answer["credentials"])


def by_instance():
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
    return boto3.Session()


def by_wrong_secret():
    keys = user().get_credentials()
    return boto3.Session(keys.access_key, keys.secret_key[::-1])


ways = [
    user,
    lambda: assumed(ExternalId="x1"),
    lambda: assumed(ExternalId="x2"),
    lambda: assumed(ExternalId="x1", DurationSeconds=7200),
    by_token,
    by_eks,
    by_instance,
    by_wrong_secret,
]
for way in ways:
    try:
        print(whose(way()))
    except botocore.exceptions.ClientError as error:
        print(error.response["Error"]["Code"])
