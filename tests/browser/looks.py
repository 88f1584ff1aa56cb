"""What the page itself is asked: is everything legible, whole, and named?"""

from __future__ import annotations

from playwright.sync_api import Locator, Page

CONTRAST_MIN = 4.5  # WCAG 2.2, success criterion 1.4.3

_COLOURS = """
  const channels = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const [r, g, b, a = 1] = channels(getComputedStyle(e).backgroundColor);
      if (b !== undefined && a > 0.9) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const contrast = (element) => {
    const colours = [channels(getComputedStyle(element).color), behind(element)];
    const [one, two] = colours.map(luminance);
    return (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
  };
"""
OF_A_NOTEBOOK = f"""
(contrastMin) => {{
  {_COLOURS}
  const found = [];
  const panel = window.jupyterapp.shell.currentWidget.node;
  const outputs = panel.querySelectorAll('.jp-OutputArea-output, .jp-RenderedMarkdown');
  for (const image of panel.querySelectorAll('.jp-OutputArea-output img')) {{
    if (!image.complete || !image.naturalWidth) found.push('a figure is missing');
    if (image.alt.split(' ').length < 3)  // where there is none, JupyterLab says "Image"
      found.push('a figure has no alternative text');
    if (image.getBoundingClientRect().right > innerWidth) found.push('cut: ' + image.alt);
  }}
  for (const area of panel.querySelectorAll('.jp-OutputArea-output')) {{
    if (area.scrollWidth > area.clientWidth + 1)
      found.push('an output is wider than the page: ' + area.innerText.slice(0, 60));
    if (area.dataset.mimeType === 'application/vnd.jupyter.stderr')
      found.push('stderr: ' + area.innerText.slice(0, 60));
  }}
  for (const part of outputs) {{
    for (const element of part.querySelectorAll('td, th, p, li, pre, code, h1, h2')) {{
      if (!element.innerText.trim()) continue;
      if (contrast(element) < contrastMin)
        found.push(`contrast ${{contrast(element).toFixed(1)}}: ` + element.innerText.slice(0, 60));
    }}
  }}
  return found;
}}
"""
OF_A_PANEL = f"""
(panel, contrastMin) => {{
  {_COLOURS}
  const found = [];
  const words = (element) => (element.innerText || element.value || '').slice(0, 60);
  const isShown = (element) => element.checkVisibility() && element.getClientRects().length;
  const scrolls = (element) => {{
    for (let e = element.parentElement; e && panel.contains(e); e = e.parentElement)
      if (['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && e !== panel
          && e.matches('[tabindex], select')) return true;
    return false;
  }};
  const right = panel.closest('.jp-OutputArea-output').getBoundingClientRect().right;
  const ownText = (element) => [...element.childNodes]
    .some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  for (const element of panel.querySelectorAll('*')) {{
    if (!isShown(element)) continue;
    const box = element.getBoundingClientRect();
    if (box.right > right + 1 && box.width && !scrolls(element))
      found.push(`wider than the page, <${{element.localName}}>: ` + words(element));
    if (element.matches('button, .widget-label') && element.scrollWidth > element.clientWidth + 1)
      found.push('cut off: ' + words(element));
    if (element.matches('img')) {{
      if (!element.complete || !element.naturalWidth) found.push('a picture is missing');
      if (element.alt.split(' ').length < 3) found.push('a picture has no alternative text');
    }}
    const isWritten = ownText(element) || element.matches('input, select, textarea');
    if (isWritten && !element.matches('style, :disabled, :disabled *')
        && contrast(element) < contrastMin)
      found.push(`contrast ${{contrast(element).toFixed(1)}}: ` + words(element));
  }}
  return found;
}}
"""


def problems_of_a_notebook(page: Page) -> list[str]:
    """Of the outputs and the prose of the notebook in front."""
    return list(page.evaluate(OF_A_NOTEBOOK, CONTRAST_MIN))


def problems_of_a_panel(panel: Locator) -> list[str]:
    """What is too wide, cut off, hard to read, or a picture without words.

    What is wider than the page may stand in a part that scrolls, if the keyboard reaches it. A
    control that is switched off may be pale.
    """
    panel.page.wait_for_function(
        "() => [...document.querySelectorAll('.labkit-panel img')].every((i) => i.complete)"
    )
    return list(panel.evaluate(OF_A_PANEL, CONTRAST_MIN))


def nameless(panel: Locator) -> list[str]:
    """Every control in a panel, by role, that a screen reader cannot name.

    Chromium's own tree for screen readers is asked, which knows labels, titles and `aria-label`.
    """
    return [role for role, name in controls(panel) if not name.strip()]


def controls(panel: Locator) -> list[tuple[str, str]]:
    """Role and name of everything in a panel that takes the focus."""
    reader = panel.page.context.new_cdp_session(panel.page)
    mark = "data-looked-at"
    panel.evaluate("(element, mark) => element.setAttribute(mark, '')", mark)
    root = reader.send("Runtime.evaluate", {"expression": f"document.querySelector('[{mark}]')"})
    panel.evaluate("(element, mark) => element.removeAttribute(mark)", mark)
    found = reader.send("Accessibility.queryAXTree", {"objectId": root["result"]["objectId"]})
    reader.detach()
    return [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in found["nodes"]
        if not node["ignored"]
        and any(each["name"] == "focusable" for each in node.get("properties", ()))
    ]
