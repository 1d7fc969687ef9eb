"""The candidate search: pure Python over plain rows, without SQL, HTTP or configuration.

``request`` says what is asked, ``providers`` what is there, ``sites`` where candidates are built, ``parts`` what one
provider must satisfy, ``slots`` who may take which part at one anchor, ``collective`` which traits these can add up to,
``refutation`` sees what cannot be, ``walk`` places the parts, ``search`` is the pipeline from sites to candidates,
``budget`` and ``size`` bound it and ``sharing`` tells which sharing providers reach an anchor. ``reasons`` names why
something was turned down.
"""
