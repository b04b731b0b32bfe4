"""Why a model is not faster: findings with evidence, from a profile, the roofline and the log of the passes."""

from pydoit.diagnosis.diagnose import Diagnosis, diagnose
from pydoit.diagnosis.facts import Facts
from pydoit.diagnosis.finding import Evidence, Finding

__all__ = ["Diagnosis", "Evidence", "Facts", "Finding", "diagnose"]
