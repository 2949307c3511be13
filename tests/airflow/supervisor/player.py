# SPDX-License-Identifier: Apache-2.0
"""A scripted model that plays the tool calls listed, as JSON, in the prompt of the run."""

from __future__ import annotations

import json

from demo.endpoint import Call, Conversation

FAIL = ["fail", {}]
"""In the list, makes the model's server refuse the request: the agent run fails there."""


def player(talk: Conversation) -> Call | str:
    """The next call of the list; "done" after the last one."""
    calls = json.loads(talk.prompt)
    if len(talk.turns) == len(calls):
        return "done"
    name, args = calls[len(talk.turns)]
    if [name, args] == FAIL:
        raise RuntimeError("the list says fail")
    return Call(name, args)
