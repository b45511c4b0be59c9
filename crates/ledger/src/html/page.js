// The page is complete without this: hints on touch screens, and two buttons.
(function () {
  var hint = document.createElement("div");
  hint.id = "hint";
  hint.setAttribute("role", "status");
  hint.hidden = true;
  document.body.appendChild(hint);
  document.addEventListener("click", function (event) {
    var text = "";
    for (var at = event.target; at && at.nodeType === 1 && !text; at = at.parentNode) {
      if (/^(summary|button|a)$/i.test(at.tagName)) { break; }
      var title = at.querySelector(":scope > title");
      text = at.getAttribute("title") || (title ? title.textContent : "");
    }
    hint.textContent = text;
    hint.hidden = !text;
  });
  function button(words, act) {
    var made = document.createElement("button");
    made.textContent = words;
    made.addEventListener("click", act);
    document.getElementById("tools").appendChild(made);
  }
  button("Open all tables", function () {
    document.querySelectorAll("details").forEach(function (one) { one.open = true; });
  });
  button("Save as JSON", function () {
    var data = document.querySelector("script[type='application/json']");
    var link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([data.textContent], { type: "application/json" }));
    link.download = data.id + ".json";
    link.click();
  });
})();
