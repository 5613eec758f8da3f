"""What boto3 is asked."""

import boto3
import botocore.exceptions
import botocore.session
from botocore.utils import IMDSRegionProvider

# What a program that catches nothing would end with.
Refused = botocore.exceptions.BotoCoreError

# One for the life of the program, as a server has it.
session = boto3.Session()


def credentials(_):
    found = session.get_credentials()
    if found is None:
        # As each call raises it that has to be signed.
        raise botocore.exceptions.NoCredentialsError
    frozen = found.get_frozen_credentials()
    return f"{frozen.access_key} {frozen.token}"


def region(_):
    found = IMDSRegionProvider(botocore.session.Session()).provide()
    if found is None:
        raise botocore.exceptions.NoRegionError
    return found
