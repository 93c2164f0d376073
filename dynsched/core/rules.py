"""rules.yaml: the schema, and the way from a parsed mapping to rules or to all its errors.

The file itself is read by ``dynsched.settings``, which turns an error's path into line:column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from dynsched.core import keys
from dynsched.core.durations import parse_duration
from dynsched.core.selector import Selector, parse_selector
