if (navigator.clipboard) for (const code of document.querySelectorAll(".again code.command")) {
  const button = document.createElement("button");
  button.type = "button"; button.className = "copy"; button.textContent = "Copy";
  button.setAttribute("aria-label", "Copy this command");
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(code.textContent); button.textContent = "Copied"; }
    catch { button.textContent = "Not allowed"; }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  code.after(button);
}
