# SPDX-License-Identifier: Apache-2.0
"""Every setting of the service: a field here, an environment variable MMAEMU_<NAME>, and a flag of `mmaemu serve`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def _whole(value: Any) -> Any:
    """Lets 1e12 stand for 1000000000000 in a flag or a variable."""
    try:
        number = float(value) if isinstance(value, str) and "e" in value.lower() else value
    except ValueError:
        return value
    return int(number) if isinstance(number, float) and number.is_integer() else number


Count = Annotated[int, BeforeValidator(_whole), Field(ge=1)]


class Settings(BaseSettings):
    """Read from keywords first, then from the environment, then from these defaults."""

    model_config = SettingsConfigDict(env_prefix="MMAEMU_", extra="ignore", frozen=True)

    host: str = Field(
        default="127.0.0.1", description="address to listen on; the service has no keys yet, so keep to loopback"
    )
    port: int = Field(default=8642, ge=0, le=65535, description="port to listen on; 0 lets the system choose")
    workers: int = Field(default=1, ge=1, le=256, description="worker processes, each running one call at a time")
    queue_length: int = Field(default=32, ge=0, description="calls that may wait for a worker; the next one gets 429")
    max_body_bytes: Count = Field(default=1 << 30, description="largest request body, in bytes")
    max_json_bytes: Count = Field(default=1 << 20, description="largest JSON request body, in bytes")
    max_held_bytes: Count = Field(
        default=4 << 30, description="bodies that all waiting calls together may hold, in bytes"
    )
    max_macs: Count = Field(default=10**12, description="largest M * N * K of a call")
    max_k: Count = Field(default=1 << 24, description="largest K of a call")
    max_result_bytes: Count = Field(default=1 << 30, description="largest result, in bytes")
    max_json_result_bytes: Count = Field(
        default=16 << 20, description="largest result that is written as JSON, in bytes"
    )
    max_cells: Count = Field(default=64, description="cells that one explain may ask for")
    max_trace_terms: Count = Field(default=1 << 18, description="largest cells * K of one explain")
    timeout_seconds: float = Field(default=600, gt=0, description="longest time that a worker computes one call")
    body_timeout_seconds: float = Field(
        default=300, gt=0, description="longest time that a request body may take to arrive"
    )
    shutdown_seconds: int = Field(default=30, ge=0, description="how long a shutdown waits for calls that still run")
