"""What the fork server imports last: it puts everything imported so far out of the collector's sight.

A full collection over torch's objects takes a tenth of a second, which every forked trial would pay again,
and it would touch and so copy every page it shares with the server. A workload that measures the collector
puts them back first.
"""

import gc

gc.collect()
gc.freeze()
