"""The maximum likelihood estimator."""

import numpy as np

from dpsieve.channels.channel import LARGEST_FREQUENCY
from dpsieve.errors import InvalidValue
from dpsieve.estimation.base import Estimator
from dpsieve.estimation.checks import Floats, Ints


class MaximumLikelihood(Estimator):
    """The value g(i) / pi_i, for the frequency i under which the token is likeliest.

    (Cohen, Geri, Sarlos, Stemmer 2021, (9).) It is right for that one frequency and biased, either way, for others.
    Its values fall at first, where the reporting probability of the likeliest frequency still grows fast.
    """

    kind = "mle"

    def _values(self, parts: Ints) -> Floats:
        likeliest = self.channel.likeliest(parts / self.channel.resolution)
        reported = self.channel.reporting_probability(np.minimum(likeliest, LARGEST_FREQUENCY))
        if not reported.all():
            raise InvalidValue("tokens holds one that no frequency leads to. Pass tokens drawn from this channel.")
        return self.target(likeliest) / reported
