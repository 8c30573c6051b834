"""Amazon SQS: the JSON 1.0 and Query protocols, API version 2012-11-05.

https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/
"""
