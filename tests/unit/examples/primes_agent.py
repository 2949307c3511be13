# SPDX-License-Identifier: Apache-2.0
"""The README's pydantic-ai example."""

# [README
from pydantic_ai import Agent

from sandbox_native import SandboxSpec, SandboxToolset, backend

sandbox = SandboxToolset(
    backend("local"),
    spec=SandboxSpec(env={"LIMIT": "100"}),  # the only variable that is given; no network
    exports={"primes.txt": "memory://results/primes.txt"},  # or file://, s3://, ...
)
agent = Agent(toolsets=[sandbox])


def main(model: str = "openai:gpt-5-mini") -> str:
    result = agent.run_sync(
        "Write a program that puts the primes below $LIMIT into primes.txt, a line each; run it.",
        model=model,
    )
    return result.output


# README]
