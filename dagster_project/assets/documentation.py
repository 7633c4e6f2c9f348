"""The page of all assets, as Markdown with a diagram, made from their records."""

from collections.abc import Iterator

from dagster_project.assets.catalogue import ASSETS, find_asset

COMMAND = "attention-geometry assets --format markdown"


def render_assets_section() -> str:
    """The diagram and the table of all assets, as Markdown."""
    rows = (
        f"| `{asset.name}` | {', '.join(f'`{parent}`' for parent in asset.parents) or '-'} | "
        f"{', '.join(asset.kinds)} | {' '.join(asset.about.split())} |"
        for asset in ASSETS
    )
    lines = [
        f"Made by `{COMMAND}`; do not edit.",
        "",
        "```mermaid",
        "flowchart LR",
        *_render_arrows(),
        "```",
        "",
        "| asset | made from | with | what it is |",
        "|---|---|---|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def _render_arrows() -> Iterator[str]:
    """The arrows of the diagram, without those from a parent of another parent, which the others imply."""
    for asset in ASSETS:
        ancestors = {above for parent in asset.parents for above in find_asset(parent).parents}
        for parent in asset.parents:
            if parent not in ancestors:
                yield f"    {parent} --> {asset.name}"
