#!/usr/bin/python3
"""Draws docs/dashboard.svg: what the queries of the dashboard returned over a minute, as relay/test/t/170_prometheus.pl saw it.

    PICTURES=/tmp test/run relay 170 && ops/grafana/draw.py /tmp/panels.json >docs/dashboard.svg
"""
import json
import sys
from html import escape
from pathlib import Path

WIDTH, HEIGHT, COLUMNS = 380, 190, 3
LEFT, TOP, RIGHT, BOTTOM = 48, 30, 12, 44  # around the lines of a panel
COLOURS = ('#3274d9', '#e0752d', '#37872d', '#c4162a', '#8f3bb8', '#b0a000')
SHOWN = ('Pending by state', 'In and out', 'Age', 'Attempts by state', 'Latency of deliveries', 'Messages a claim',
         'Published', 'Failed', 'Lag', 'Publish duration', 'In flight', 'Breakers')


def short(value, unit):
    if unit == 'percentunit':
        return f'{100 * value:g} %'
    for limit, factor, name in ((1e-3, 1e6, ' µs'), (1, 1e3, ' ms'), (float('inf'), 1, ' s')):
        if unit == 's' and value < limit:
            return f'{value * factor:.3g}{name}' if value else '0'
    return f'{value:g}'


def round_up(value):
    power = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 10.0 ** -(len(f'{1 / value:.0f}') if value else 0)
    return next(step * power for step in (1, 2, 5, 10, 20, 50, 100) if step * power >= value)


def lines(panel):
    """Legend and points of each series; Grafana fills labels into legends in the same way."""
    for target in panel:
        for series in target['result']:
            legend = target['legend']
            for label, value in series['metric'].items():
                legend = legend.replace('{{' + label + '}}', value)
            points = [(float(at), float(value)) for at, value in series['values'] if value not in ('NaN', '+Inf')]
            if points:
                yield legend, points


def draw(title, unit, panel, x, y):
    drawn = list(lines(panel))
    top = round_up(max((value for _, points in drawn for _, value in points), default=1) or 1)
    begin = min((points[0][0] for _, points in drawn), default=0)
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    yield f'<g transform="translate({x},{y})"><rect width="{WIDTH - 8}" height="{HEIGHT - 8}" rx="3" fill="#fff" stroke="#d0d4da"/>'
    yield f'<text x="10" y="19" font-weight="bold">{escape(title)}</text>'
    for part in (0, .5, 1):
        at = TOP + high * (1 - part)
        yield f'<path d="M{LEFT} {at:.1f}h{wide}" stroke="#e6e8eb"/><text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{short(top * part, unit)}</text>'
    for number, (legend, points) in enumerate(drawn):
        colour = COLOURS[number % len(COLOURS)]
        path = ' '.join(f'{LEFT + wide * (at - begin) / 60:.1f},{TOP + high * (1 - value / top):.1f}' for at, value in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    yield '<text y="%d">' % (HEIGHT - 22) + ' '.join(
        f'<tspan {"x=%s" % chr(34) + str(LEFT) + chr(34) if not number else ""} fill="{COLOURS[number % len(COLOURS)]}">{escape(legend)}</tspan>'
        for number, (legend, _) in enumerate(drawn[:6])) + '</text></g>'


def main(file):
    found = json.loads(Path(file).read_text())
    dashboard = json.loads((Path(__file__).parent / 'outbox.json').read_text())
    units = {panel['title']: panel['fieldConfig']['defaults']['unit'] for panel in dashboard['panels'] if panel['type'] != 'row'}
    rows = -(-len(SHOWN) // COLUMNS)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * WIDTH} {rows * HEIGHT}" '
          f'width="{COLUMNS * WIDTH}" height="{rows * HEIGHT}" font-family="sans-serif" font-size="11" fill="#333">')
    print('<rect width="100%" height="100%" fill="#f4f5f7"/>')
    for number, title in enumerate(SHOWN):
        print(*draw(title, units[title], found[title], 4 + number % COLUMNS * WIDTH, 4 + number // COLUMNS * HEIGHT), sep='\n')
    print('</svg>')


main(sys.argv[1])
